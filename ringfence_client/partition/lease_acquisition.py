"""Opens an assigned partition: waits for its lease, fences the former holder, then reads that holder's progress."""

import asyncio
import contextlib
import dataclasses
import logging
import math
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from aiokafka.errors import KafkaError

from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.partition.dead_letters import DeadLetters
from ringfence_client.partition.progress_writer import TRANSACTION_TIMEOUT_MS, ProgressWriter
from ringfence_client.progress.lease import Lease, LeaseWatch, LostError
from ringfence_client.progress.progress_record import Progress
from ringfence_client.progress.progress_topic import ProgressTopic
from ringfence_client.progress.resume_offset import Log, log_beginning, resume, survived, unrecorded
from ringfence_client.progress.topic_checks import small
from ringfence_client.sends.partition_sends import PartitionSends
from ringfence_client.sends.state_reader import StateReader
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.window import Window
from ringfence_kafka import clock
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.errors import RingfenceError, require
from ringfence_kafka.ownership.partition_state import NotOwnerError
from ringfence_kafka.process.failpoints import reach
from ringfence_kafka.producer.shared_clients import ProducerClients
from ringfence_kafka.producer.transactional import RefusedError, TransactionalProducer, refusing_topics
from ringfence_kafka.protocol import wire_names

log: Final = logging.getLogger("ringfence.consumer")


LOOK_S: Final = 0.1
"""Interval of looks at a lease that another consumer holds, in seconds."""
SAY_S: Final = 10.0
FRESH_S: Final = 0.2
"""Seconds for which a look at a lease counts. After that, another look precedes the fence: the holder may have written meanwhile."""
LAST_LOOK_S: Final = 1.0
"""Time limit of the last look before a fence, in seconds."""
EXPLAIN_LIMIT_S: Final = 3.0
FENCE_LIMIT_S: Final = 10.0
"""Time limit of a fence, in seconds. A partition whose coordinator is down must not block the other partitions' fences."""


class _HeldError(Exception):
    """The lease is not free, or its state is unknown."""


class LeaseAcquisition:
    """Opens the partitions of one accepted topic for one consumer group."""

    def __init__(
        self,
        progress: ProgressTopic,
        letters: DeadLetters,
        options: ConsumerOptions,
        memory: MemoryBudget,
        group_watch: GroupWatch,
        states: StateReader,
        *,
        web: str = "",
    ) -> None:
        """``web``: address of this consumer's web server. The progress record contains it."""
        self._app_id = progress.app_id
        self._cluster = progress.cluster
        self._progress = progress
        self._letters = letters
        self._options = options
        self._memory = memory
        self._group_watch = group_watch
        self._states = states
        self._clients = ProducerClients(self._cluster.kafka)
        self._watches: dict[bytes, LeaseWatch] = {}
        """Watches by key, kept between openings. Neither a rebalance nor a failure restarts the wait for a silent holder."""
        self._ended: dict[bytes, set[str]] = {}
        """Former holders by key that were this consumer, and whose runs have all ended, as long as a record may name them."""
        self._unrecorded: dict[bytes, dict[int, int]] = {}
        """Attempts without an outcome from before the last opening here: counts by key and offset."""
        self._web = web

    async def stop(self) -> None:
        """Disconnect. All opened partitions are closed before."""
        await self._clients.stop()

    def ended(self, lease: Lease) -> None:
        """Record that all runs under a former lease of this consumer have ended. The next opening does not wait for it."""
        self._ended.setdefault(lease.key, set()).add(lease.holder)

    async def open(
        self,
        topic: str,
        partition: int,
        confirm: Callable[[], Awaitable[bool]],
        waiting: Callable[[str], None] = lambda _: None,
    ) -> tuple[Lease, Window, ProgressWriter]:
        """Wait for the lease, fence, read the progress, and prepare a window and a writer. Writes nothing.

        ``confirm`` asks the broker whether this consumer still has the partition. Before the fence, it keeps a consumer that slept past its
        session from fencing its successor. After the fence, it keeps a consumer from working on a partition that it lost meanwhile. ``waiting``
        is called with a description of the holder that the consumer waits for.

        Raises:
            NotOwnerError: The partition is not assigned to this consumer.
            ProgressFormatError: The progress record cannot be read.
        """
        holder = f"{self._options.name}/{uuid.uuid4().hex[:8]}"
        lease = Lease(self._cluster.group_id, topic, partition, holder, self._web)
        producer, predecessor = await self._taken(lease, confirm, waiting)
        async with producer.kept():
            log_now = await self._log(lease, predecessor)
        found = resume(predecessor, log_now)
        log_beginning(lease, predecessor, log_now, found)
        token = 1 + (predecessor.token if predecessor is not None else 0)
        lease = dataclasses.replace(lease, token=token, topic_id=log_now.topic_id)

        progress = found.progress
        if predecessor is not None and predecessor.holder in self._ended.get(lease.key, ()):
            progress = survived(progress, self._unrecorded.get(lease.key, {}))
        self._unrecorded[lease.key] = unrecorded(progress)
        window = Window(
            progress,
            memory=self._memory,
            prefetch=self._options.held_max,
            records_max=self._options.records_max,
            gap=found.gap,
        )

        # An operator who sets the offsets computes the states again.
        states = "" if predecessor is None or found.moved or found.recreated else predecessor.states

        writer = ProgressWriter(
            lease,
            window,
            producer,
            lambda: (self._progress.name, self._progress.home(lease.key)),
            self._letters,
            partial(self._take_back, lease, predecessor, confirm),
            self._explain,
            PartitionSends(self._states, states),
            options=self._options,
            parts=predecessor.parts if predecessor is not None else (),
        )
        return lease, window, writer

    async def _taken(
        self, lease: Lease, confirm: Callable[[], Awaitable[bool]], waiting: Callable[[str], None]
    ) -> tuple[TransactionalProducer, Progress | None]:
        watch = self._watches.setdefault(
            lease.key, LeaseWatch(self._options.lease_timeout, self._options.lease_idle)
        )
        said = -math.inf
        await _confirmed(lease, confirm)
        while True:
            await reach("opening", _lane(lease))
            looked_at = clock.now()
            left, recorded = await self._observe(lease, watch)
            if not left or recorded is None:
                with contextlib.suppress(_HeldError):
                    taken = await self._fenced(
                        lease, lambda: self._require_free(lease, watch), confirm, looked_at
                    )
                    self._forget(lease, taken[1])
                    return taken
                continue
            now = clock.now()
            text = (
                f"{lease} is held by {recorded.holder}, {recorded.state}, token {recorded.token}: unchanged for "
                f"{now - watch.since:.1f} s, delivered up to {recorded.delivered}, acknowledged up to {recorded.next}, "
                f"{recorded.running} unacknowledged"
            )
            waiting(text)
            if now - said >= SAY_S:
                said = now
                log.info("%s; waiting", text)
            await asyncio.sleep(min(left, LOOK_S))

    async def _observe(self, lease: Lease, watch: LeaseWatch) -> tuple[float, Progress | None]:
        """Return the seconds for which the lease must stay unchanged, and the last record."""
        begun = clock.now()
        recorded, asked_at = await self._progress.latest_with_time(lease.key)
        left = watch.silence_left(recorded, begun, asked_at)
        ended = self._ended.get(lease.key, ())
        return (0.0 if recorded is not None and recorded.holder in ended else left), recorded

    def _forget(self, lease: Lease, recorded: Progress | None) -> None:
        """Delete former leases. After the fence the record stays unchanged until this consumer writes, so it can name only one of them."""
        ended = self._ended.pop(lease.key, set())
        if recorded is not None and recorded.holder in ended:
            self._ended[lease.key] = {recorded.holder}

    async def _require_free(self, lease: Lease, watch: LeaseWatch) -> Progress | None:
        """Return the last record if the lease is still free. A holder that wrote meanwhile would notice the fence and fence back."""
        left, recorded = await self._observe(lease, watch)
        if left:
            log.info("%s: its consumer wrote again before it was fenced: waiting", lease)
            raise _HeldError(lease)
        return recorded

    async def _fenced(
        self,
        lease: Lease,
        look: Callable[[], Awaitable[Progress | None]],
        confirm: Callable[[], Awaitable[bool]],
        looked_at: float = math.inf,
    ) -> tuple[TransactionalProducer, Progress | None]:
        """Check membership, fence the partition, check membership again, and read the lease after the fence.

        ``look`` reads the lease, and raises if it is not free. It is called before the fence if the look at ``looked_at`` is too old. It is
        also called after the fence: acknowledgements of the former holder count up to the fence, and cannot follow it.
        """
        async with self._clients.turns:
            if clock.now() > looked_at + FRESH_S:
                try:
                    async with asyncio.timeout(LAST_LOOK_S):
                        await look()
                except TimeoutError as error:  # other partitions wait for the turn
                    raise _HeldError(f"{lease} cannot be read within {LAST_LOOK_S:g} s") from error
            await _confirmed(lease, confirm)
            await reach("before-fence", _lane(lease))
            producer = TransactionalProducer(
                self._cluster.kafka,
                wire_names.consumer_transactional_id(self._app_id, lease.group, lease.topic, lease.partition),
                _lane(lease),
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                clients=self._clients,
            )
            async with producer.kept():
                await producer.fence(FENCE_LIMIT_S)
                await reach("after-fence", _lane(lease))
                await _confirmed(lease, confirm)
        async with producer.kept():
            return producer, await look()

    async def _log(self, lease: Lease, recorded: Progress | None) -> Log:
        topic, partition = lease.topic, lease.partition
        # Read the ID first. If the topic is created again meanwhile, the old ID comes with offsets of the new topic. The watch of the topic
        # notices that.
        identity = await self._cluster.topics.identity(topic)
        committed = await self._trusted(lease, recorded)
        start = await self._cluster.offsets.log_start(topic, partition)
        return Log(
            identity.topic_id, committed, start, await self._cluster.offsets.high_watermark(topic, partition)
        )

    async def _trusted(self, lease: Lease, recorded: Progress | None) -> int | None:
        """Return the group's offset. The offset of a foreign consumer is ignored, because the progress record is more accurate."""
        topic, partition = lease.topic, lease.partition
        noted = await self._cluster.groups.committed(topic, partition)
        known = None if recorded is None else recorded.next
        why = await self._group_watch.distrust(topic, partition, noted, known)
        if not why or noted is None:
            return None if noted is None else noted.offset
        before = self._group_watch.before(topic, partition) if recorded is None else None
        log.error(
            "%s: the offset %d of %s is not followed: %s; reading continues at %s, where the progress of this consumer group is",
            lease, noted.offset, lease.group, why, known if before is None else before.offset,
        )  # fmt: skip
        return None if before is None else before.offset

    async def _take_back(
        self,
        lease: Lease,
        predecessor: Progress | None,
        confirm: Callable[[], Awaitable[bool]],
        draining: Callable[[], bool],
    ) -> tuple[TransactionalProducer, Progress | None]:
        """Fence again after a failed write, unless another consumer has written; return the new producer and the last record.

        The failure may be a fence. Then the record names the new holder, because a holder writes the lease before anything else. A draining
        holder is not assigned the partition any more. It continues until another consumer takes the lease: its handlers' finished work must
        be written, and the next holder waits for that. The same holds for a holder that begins to drain during the call. A consumer that
        was removed from the group fences no holder, even before its client learns of the removal by the next heartbeat.

        The record is also read before the fence. If a living holder caused the failure with its fence, that holder is left alone. An open
        transaction of this consumer delays that reading until the fence, so the reading has a short time limit.

        Raises:
            LostError: Another consumer has taken the lease.
            NotOwnerError: The owner is unknown for now; the caller tries again.
        """

        async def look() -> Progress | None:
            progress = await self._progress.latest(lease.key)
            self._require_ours(lease, predecessor, progress)
            return progress

        async def look_soon() -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_LOOK_S):
                    await look()

        async def unasked() -> bool:
            return True

        await look_soon()
        if not draining():
            try:
                return await self._fenced(lease, look, confirm)
            except NotOwnerError:
                if not draining():
                    raise
            await look_soon()
        return await self._fenced(lease, look, unasked)

    async def _explain(self, error: Exception) -> str:
        """Return a probable reason why progress cannot be written; empty = unknown."""
        try:
            async with asyncio.timeout(EXPLAIN_LIMIT_S):
                if not await self._cluster.topics.partition_counts([self._progress.name]):
                    return f"{self._progress.name} no longer exists"
                if not (isinstance(error, RefusedError) and error.too_large):
                    return ""
                if self._progress.name not in refusing_topics(error):
                    return ""
                found = (await self._cluster.topics.describe([self._progress.name])).topics.get(
                    self._progress.name
                )
        except (KafkaError, OSError, TimeoutError, RingfenceError):
            return ""
        return small(found) if found is not None and found.config is not None else ""

    def _require_ours(self, lease: Lease, predecessor: Progress | None, progress: Progress | None) -> None:
        if progress is not None and progress.holder != lease.holder and progress != predecessor:
            raise LostError(f"{progress.holder} has taken it")
        if progress is not None and progress.holder == lease.holder:
            require(
                progress.token == lease.token, lease, "has token", lease.token, "and wrote", progress.token
            )


def _lane(lease: Lease) -> str:
    """Return the partition's name at fail points."""
    return f"{lease.group}/{lease}"


async def _confirmed(lease: Lease, confirm: Callable[[], Awaitable[bool]]) -> None:
    if not await confirm():
        raise NotOwnerError(f"{lease} is no longer assigned to this consumer")
