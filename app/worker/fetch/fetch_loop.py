"""Takes records from aiokafka, a batch for each partition, and keeps it fetching. Independent of Faust."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    UnsupportedCodecError,
)

from agents.batch.batch import FetchedBatch, Held, Record
from app.worker.fetch.buffers import Buffers
from app.worker.fetch.fetch_interval import FetchInterval
from app.worker.fetch.fetch_scheduler import BoundedFetches, FetchScheduler
from ringfence_kafka.admin.topics import lacking
from ringfence_kafka.aiokafka_patches import fetch_buffer, internals
from ringfence_kafka.protocol.record_batch import OldFormatError

FETCHED_WITHIN_S: Final = 1.0
"""Time that the consumer's thread waits for records before it returns without any, in seconds."""
REST_S: Final = 1.0
"""Pause of a partition that cannot be read, in seconds. The broker refuses each of its fetches at once."""
QUIET_S: Final = 1.0
"""Time after which an empty offset range travels alone, in seconds: markers and aborted records."""
QUIET_AGAIN_S: Final = 0.1
FAILED_AGAIN_S: Final = 10.0
"""Minimum time between restarts of aiokafka's fetching, in seconds; an earlier restart waits."""


class FetchLoop:
    """Batches of one connected consumer, on the event loop of its thread."""

    def __init__(
        self,
        consumer: Any,
        buffers: Buffers,
        interval: FetchInterval,
        is_flowing: Callable[[], bool],
        is_active: Callable[[Any], bool],
        unreadable: Callable[[str, int, str], None],
    ) -> None:
        """Create the loop. It changes aiokafka's fetcher at once.

        ``is_flowing``: whether any records are wanted; a rebalance stops them. ``is_active``: whether batches of
        a partition are wanted now. ``unreadable`` gets topic, partition and reason of a refused or damaged fetch.
        """
        self._consumer = consumer
        self._fetcher = fetch_buffer.fetcher_of(consumer)
        self._buffers = buffers
        self._is_flowing = is_flowing
        self._is_active = is_active
        self._unreadable = unreadable
        self._seeks: Counter[TopicPartition] = Counter()
        self._empty: dict[TopicPartition, tuple[int, int, float]] = {}
        """Empty offset ranges: begin, end, and monotonic time of the last growth."""
        self._resting: dict[TopicPartition, float] = {}
        """Monotonic time at which the pause of an unreadable partition ends."""
        self._restarted = -math.inf
        BoundedFetches(self._fetcher, buffers, self._may_read)
        self._pace = FetchScheduler(self._fetcher, self._is_wanted, interval)

    async def fetch(self, limit_s: float) -> dict[TopicPartition, FetchedBatch]:
        """Return the fetched records of each active partition; wait up to ``limit_s`` seconds for the first.

        The active partitions may change during the wait, so each look asks again.
        """
        fetcher = self._fetcher
        deadline = time.monotonic() + limit_s
        with fetch_buffer.subscriptions(fetcher).fetch_context():
            while self._is_flowing():
                if fetch_buffer.is_closed(self._consumer):
                    raise ConsumerStoppedError
                await self._keep_fetching()
                # create the waiter before the look, so that no fetch is missed between the two
                waiter = fetch_buffer.fetch_waiter(fetcher)
                try:
                    batches = await self._drain()
                    left = deadline - time.monotonic()
                    if batches or left <= 0:
                        return batches
                    await asyncio.wait(
                        {waiter, fetch_buffer.fetching(fetcher)},
                        timeout=min(left, self._rest_left(), self._quiet_left()),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    if waiter.done() and isinstance(
                        error := waiter.exception(), GroupAuthorizationFailedError
                    ):
                        raise error
                finally:
                    waiter.cancel()
        return {}

    def wake(self) -> None:
        """Wake a waiting fetch to look again.

        aiokafka ends the wait only for new fetches, not for records that were fetched before and are wanted
        only now.
        """
        fetch_buffer.wake(self._fetcher)

    def use_room(self) -> None:
        """Look again, and fetch partitions that had no room."""
        self.wake()
        fetch_buffer.wake_fetching_task(self._fetcher)

    def rewind(
        self, places: Iterable[tuple[TopicPartition, int]]
    ) -> dict[tuple[TopicPartition, int], int | Exception]:
        """Fetch partitions again from offsets; return each one's number of rewinds, or its error."""
        rewinds: dict[tuple[TopicPartition, int], int | Exception] = {}
        for tp, offset in places:
            self._seeks[tp] += 1
            self._empty.pop(tp, None)
            self._resting.pop(tp, None)  # the new offset may lie outside the damaged part
            try:
                self._consumer.seek(tp, offset)
            except Exception as error:
                rewinds[tp, offset] = error
            else:
                rewinds[tp, offset] = self._seeks[tp]
        self._pace.hurry()
        return rewinds

    async def _keep_fetching(self) -> None:
        if not fetch_buffer.fetching(self._fetcher).done():
            return
        if time.monotonic() < self._restarted + FAILED_AGAIN_S:
            await asyncio.sleep(FETCHED_WITHIN_S)
        self._restarted = time.monotonic()
        internals.keep_fetching(self._consumer)

    def _is_wanted(self, tp: TopicPartition) -> bool:
        return self._may_read(tp) and self._buffers.has_room(tp)

    def _may_read(self, tp: TopicPartition) -> bool:
        return self._is_active(tp) and self._resting.get(tp, 0.0) <= time.monotonic()

    def _rest_left(self) -> float:
        """Return the seconds until the next pause of an unreadable partition ends."""
        now = time.monotonic()
        return min((end - now for end in self._resting.values() if end > now), default=math.inf)

    async def _drain(self) -> dict[TopicPartition, FetchedBatch]:
        fetcher, subscriptions = self._fetcher, fetch_buffer.subscriptions(self._fetcher)
        batches = {}
        read: dict[TopicPartition, bool] = {}
        for tp in fetch_buffer.partitions(fetcher):
            # During an assignment, fetched_records would wait, and positions would move meanwhile.
            if subscriptions.reassignment_in_progress or subscriptions.subscription is None:
                break
            # Unwanted records stay in the fetcher, which does not fetch more of the partition.
            if not self._is_wanted(tp) or not subscriptions.is_assigned(tp):
                continue
            state = subscriptions.subscription.assignment.state_value(tp)
            if not state.has_valid_position:
                continue
            begin = state.position
            parsed = fetch_buffer.parsed(fetcher, tp)
            try:
                records, held = await self._buffers.read(fetcher, tp)
            except (TopicAuthorizationFailedError, CorruptRecordException) as error:
                # an error raised here would end the worker
                self._resting[tp] = time.monotonic() + REST_S
                self._unreadable(tp.topic, tp.partition, _reason(tp, begin, error))
                continue
            end = state.position if state.has_valid_position else begin
            if end > begin:
                read[tp] = end < (state.lso or 0)
            malformed = dict(parsed.malformed) if parsed is not None else {}
            batch = self._batch(tp, begin, end, records, malformed, held)
            if batch is not None:
                batches[tp] = batch
        self._buffers.count_unread(fetcher)  # records that were just read no longer count as fetched
        self._pace.record_reads(read)
        return batches | self._quiet()

    def _quiet(self) -> dict[TopicPartition, FetchedBatch]:
        """Return empty offset ranges without a following record, so that the group's offset passes them.

        Otherwise a partition that was read to its end would show a lag while it is idle.
        """
        batches: dict[TopicPartition, FetchedBatch] = {}
        subscriptions = fetch_buffer.subscriptions(self._fetcher)
        if subscriptions.reassignment_in_progress or subscriptions.subscription is None:
            return batches
        due = time.monotonic() - QUIET_S
        for tp, (begin, end, since) in list(self._empty.items()):
            if since > due:
                continue
            if not subscriptions.is_assigned(tp):
                del self._empty[tp]
            elif self._is_wanted(tp):
                del self._empty[tp]
                batches[tp] = FetchedBatch(tp.topic, tp.partition, begin, end, [], self._seeks[tp])
        return batches

    def _quiet_left(self) -> float:
        """Return the seconds until the next empty range is due; never 0, because a rebalance may delay it."""
        now = time.monotonic()
        due = (since + QUIET_S - now for tp, (_, _, since) in self._empty.items() if self._is_wanted(tp))
        return max(QUIET_AGAIN_S, min(due, default=math.inf))

    def _batch(
        self,
        tp: TopicPartition,
        begin: int,
        end: int,
        records: Sequence[Record],
        malformed: Mapping[int, str],
        held: Held | None,
    ) -> FetchedBatch | None:
        """Return the batch. It begins with the empty range that earlier fetches found before it."""
        earlier = self._empty.pop(tp, None)
        if earlier is not None and earlier[1] == begin:
            begin = earlier[0]
        if held is None:
            if end > begin:
                self._empty[tp] = (begin, end, time.monotonic())
            return None
        asked_at = self._pace.asked_at(tp)
        return FetchedBatch(
            tp.topic, tp.partition, begin, end, records, self._seeks[tp], malformed, held.bytes, (held,), asked_at
        )  # fmt: skip


def _reason(
    tp: TopicPartition, offset: int, error: TopicAuthorizationFailedError | CorruptRecordException
) -> str:
    """Return why a partition cannot be read, and what to do."""
    if isinstance(error, TopicAuthorizationFailedError):
        return lacking("topic", tp.topic, {"Read"})
    if isinstance(error, OldFormatError):
        return str(error)
    cause = error.__cause__
    remedy = (
        "install a library for it (cramjam) where the workers run, and start them again"
        if isinstance(cause, UnsupportedCodecError)
        else f"look at the brokers' disks; if it is lost, delete {tp.topic}/{tp.partition} up to the "
        "offset behind it (kafka-delete-records.sh), which is reported as GAP"
    )
    return f"the record batch at offset {offset} cannot be read ({cause!r}): {remedy}"
