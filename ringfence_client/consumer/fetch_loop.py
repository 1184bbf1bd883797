"""Moves fetched records into the windows of held partitions, and limits fetching."""

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from ringfence_client.consumer.partitions import HeldPartitions
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_kafka.aiokafka_patches import internals, membership
from ringfence_kafka.aiokafka_patches.adaptive_fetch import AdaptiveFetch
from ringfence_kafka.aiokafka_patches.lenient_records import UNREADABLE_ERRORS
from ringfence_kafka.errors import named

log: Final = logging.getLogger("ringfence.consumer")

POLL_MS: Final = 100
MOVING_POLL_MS: Final = 10
"""Poll time in milliseconds while full windows move: a handler soon needs records that are not fetched yet."""
FETCH_RECORDS_MAX: Final = 250
"""Limit of records taken at once. Handlers run in between."""
FETCH_PART: Final = 5
"""The limit is also at most 1/n of a window."""
FETCH_AGAIN_S: Final = 1.0
UNREADABLE_REST_S: Final = 5.0
"""Rest of a partition with unreadable records, in seconds. Each attempt delays the other partitions."""


class FetchLoop:
    """Fetch loop of one accepted topic."""

    def __init__(
        self, held_partitions: HeldPartitions, options: ConsumerOptions, memory: MemoryBudget
    ) -> None:
        self.doubted = False
        """Whether the topic may be another one. Until this is known, no records are taken."""
        self._topic = held_partitions.topic
        self._fetch_max = min(FETCH_RECORDS_MAX, max(1, options.records_max // FETCH_PART))
        self._held_partitions = held_partitions
        self._dispatcher = held_partitions.dispatcher
        self._parked = held_partitions.parked
        self._memory = memory
        self._finished, self._moved = 0, 0.0
        """Number of finished messages, and the time of its last change."""
        self._consumer: Any
        self._fetches: AdaptiveFetch
        self._unreadable: dict[int, tuple[HeldPartition, str]] = {}
        """Holders that met unreadable records, and the reasons, by partition."""
        self._rest_until: dict[int, float] = {}

    @property
    def faults(self) -> list[str]:
        """Held partitions whose next records cannot be read, with the reasons."""
        partitions = self._held_partitions.partitions
        return [
            f"{held} cannot be read: {why}"
            for number, (held, why) in self._unreadable.items()
            if partitions.get(number) is held
        ]

    def attach(self, consumer: Any) -> None:
        """Attach aiokafka's consumer, which is not connected yet."""
        self._consumer = consumer
        self._fetches = AdaptiveFetch(consumer)

    def doubt(self) -> None:
        """Take no records until :attr:`doubted` is reset: the topic may be a new one, to which this progress does not apply."""
        self.doubted = True
        self._consumer.pause(*self._consumer.assignment())

    async def fetch(self) -> None:
        """Fetch until cancelled. The consumer has joined its group."""
        while True:
            internals.keep_fetching(self._consumer)
            membership.keep_member(self._consumer)
            timeout_ms = MOVING_POLL_MS if self._moving() else POLL_MS
            try:
                brought = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=self._fetch_max)
            except OffsetOutOfRangeError as error:
                self._judge(error.args[0])
                continue
            except (KafkaError, OSError, UnicodeDecodeError) as error:
                # aiokafka has moved its positions beyond records that it drops. No window has these records.
                self._go_back(self._held_partitions.partitions.values())
                log.warning("nothing can be fetched, next attempt in %.0f s: %s", FETCH_AGAIN_S, named(error))
                await asyncio.sleep(FETCH_AGAIN_S)
                await self._separately()
                continue
            self._take(brought)
            await asyncio.sleep(0)  # aiokafka returns buffered records without an await

    def _go_back(self, held_partitions: Iterable[HeldPartition]) -> None:
        """Read again from the ends of the windows, because later fetched records did not get there."""
        assigned = self._consumer.assignment()
        for held in held_partitions:
            tp = TopicPartition(self._topic, held.partition)
            if tp in assigned and not held.draining:
                self._consumer.seek(tp, held.window.end)

    async def _separately(self) -> None:
        """Take fetched records one partition at a time. An unreadable partition then does not affect the others."""
        for number, held in list(self._held_partitions.partitions.items()):
            tp = TopicPartition(self._topic, number)
            if tp not in self._consumer.assignment() or held.draining:
                continue
            try:
                brought = await self._consumer.getmany(tp, timeout_ms=0, max_records=self._fetch_max)
            except OffsetOutOfRangeError as error:
                self._judge(error.args[0])
            except UNREADABLE_ERRORS as error:
                self._go_back([held])
                self._unreadable[number] = held, named(error)
                self._rest_until[number] = asyncio.get_running_loop().time() + UNREADABLE_REST_S
                self._consumer.pause(tp)
                log.error(
                    "%s/%d cannot be read: its messages wait, and other partitions continue; next attempt "
                    "in %.0f s: %s",
                    held, held.window.end, UNREADABLE_REST_S, named(error),
                )  # fmt: skip
            except (KafkaError, OSError):
                return  # an error of the group or a broker: the common fetch reports it
            else:
                self._take(brought)

    def _moving(self) -> bool:
        now, finished = asyncio.get_running_loop().time(), self._dispatcher.counts["finished"]
        if finished != self._finished:
            self._finished, self._moved = finished, now
        return bool(self._consumer.paused()) and now - self._moved <= POLL_MS / 1000

    def _take(self, brought: dict[TopicPartition, list[Any]]) -> None:
        """Feed the windows. No await separates the fetch from this call, so positions match the windows' content."""
        partitions = self._held_partitions.partitions
        for tp, records in brought.items():
            held = partitions.get(tp.partition)
            if held is not None:
                self._unreadable.pop(tp.partition, None)
                held.window.feed(records)
        self._dispatcher.wake()
        now = asyncio.get_running_loop().time()
        paused = self._consumer.paused()  # checks all partitions, so it is called once
        fetched = internals.fetched(self._consumer)
        self._memory.set_fetched(sum(fetched.values()))
        self._fetches.limit(self._memory.partition_bytes_max)
        crowded = self._memory.crowded
        for number, held in partitions.items():
            tp = TopicPartition(self._topic, number)
            reached = internals.position(self._consumer, tp)
            before = held.window.next
            if reached is not None:
                held.window.reached(reached)
            if held.window.next != before:
                held.writer.count_changes()
            held.window.tick(now)
            self._throttle(tp, held, paused, fetched, crowded=crowded)
            self._parked.read_ahead(held)
            self._parked.read_redriven(held, self._dispatcher.wake)

    def _judge(self, out_of_range: dict[TopicPartition, int]) -> None:
        """Reopen partitions whose next record was deleted, by retention or with the topic."""
        for tp, offset in out_of_range.items():
            log.warning("%s/%d: offset %d no longer exists", tp.topic, tp.partition, offset)
            held = self._held_partitions.partitions.get(tp.partition)
            if held is not None:
                held.fail()

    def _throttle(
        self,
        tp: TopicPartition,
        held: HeldPartition,
        paused: set[TopicPartition],
        fetched: Collection[TopicPartition],
        *,
        crowded: bool,
    ) -> None:
        """Pause or resume a partition. Its ``fetched`` records are taken first, even if memory is short."""
        if tp not in self._consumer.assignment() or held.draining:
            return
        there = tp in fetched
        wants = held.window.wants_more(self._dispatcher.idle, self._fetch_max)
        rests = self._rest_until.get(tp.partition, 0.0) > asyncio.get_running_loop().time()
        if self.doubted or rests or not wants or (crowded and not there):
            self._consumer.pause(tp)
            if there:
                internals.drop_fetched(self._consumer, [tp])
        elif tp in paused:
            self._consumer.resume(tp)
