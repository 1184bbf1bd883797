"""Opens a partition that Kafka has assigned: wait for its lease, fence the former holder, then read how far it came."""

import asyncio
import contextlib
import dataclasses
import logging
import math
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

from aiokafka.errors import KafkaError

from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.partition.beginning_log import log_beginning
from ringfence_client.partition.dead_letters import DeadLetters
from ringfence_client.partition.progress_writer import TRANSACTION_TIMEOUT_MS, ProgressWriter
from ringfence_client.progress import deaths
from ringfence_client.progress.lease import Lease, LeaseWatch, LostError
from ringfence_client.progress.progress_record import Progress
from ringfence_client.progress.progress_topic import ProgressTopic
from ringfence_client.progress.resume_offset import Log, resume
from ringfence_client.progress.topic_checks import small
from ringfence_client.sends.partition_sends import PartitionSends
from ringfence_client.sends.state_store import StateReader
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.window import Window
from ringfence_kafka import clock
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import RingfenceError, require
from ringfence_kafka.ownership.partition_state import NotOwnerError
from ringfence_kafka.process.failpoints import reach
from ringfence_kafka.producer.shared_clients import ProducerClients
from ringfence_kafka.producer.transactional import RefusedError, TransactionalProducer, refusing_topics
from ringfence_kafka.protocol import wire_names

log: Final = logging.getLogger("ringfence.consumer")


LOOK_S: Final = 0.1
"""Between two looks at a lease that somebody else has."""
SAY_S: Final = 10.0
FRESH_S: Final = 0.2
"""For so long a look at a lease counts. After that, it is looked at again before the fence: its holder may have written meanwhile."""
LAST_LOOK_S: Final = 1.0
"""For that look, and for one of a holder that writes again. One that takes longer is given up."""
EXPLAIN_LIMIT_S: Final = 3.0
FENCE_LIMIT_S: Final = 10.0
"""One whose coordinator is away must not keep its turn from the others."""


class _HeldError(Exception):
    """The lease may not be taken yet, or this is not known."""


class LeaseAcquisition:
    """Opens the partitions of one accepted topic for one consumer group."""

    def __init__(
        self,
        kafka: KafkaSettings,
        app_id: str,
        cluster: Cluster,
        progress: ProgressTopic,
        letters: DeadLetters,
        options: ConsumerOptions,
        memory: MemoryBudget,
        group_watch: GroupWatch,
        states: StateReader,
        *,
        web: str = "",
    ) -> None:
        """``web``: where this consumer's web server is, for others to find."""
        self._kafka = kafka
        self._app_id = app_id
        self._cluster = cluster
        self._progress = progress
        self._letters = letters
        self._options = options
        self._memory = memory
        self._group_watch = group_watch
        self._states = states
        self._clients = ProducerClients(kafka)
        self._watches: dict[bytes, LeaseWatch] = {}
        """By key, from one opening to the next: neither a rebalance nor a failure makes a silent holder younger."""
        self._ended: dict[bytes, set[str]] = {}
        """By key, holders that were this consumer, and of which nothing runs any more; those alone that a record may still name."""
        self._deaths: dict[bytes, dict[int, int]] = {}
        """By key, attempts that ended without a word before the last opening here, by offset."""
        self._web = web

    async def stop(self) -> None:
        """Disconnect, when all that was opened is closed."""
        await self._clients.stop()

    def ended(self, lease: Lease) -> None:
        """Note that nothing of this former lease of ours runs any more: it need not be waited for."""
        self._ended.setdefault(lease.key, set()).add(lease.holder)

    async def open(
        self,
        topic: str,
        partition: int,
        confirm: Callable[[], Awaitable[bool]],
        waiting: Callable[[str], None] = lambda _: None,
    ) -> tuple[Lease, Window, ProgressWriter]:
        """Wait, fence, read, and prepare; nothing is written yet.

        Args:
            topic: The accepted topic.
            partition: Its number.
            confirm: Asks the broker whether the partition is still ours. Before the fence, so that a consumer that slept past its session
            does not fence its successor. After the fence, so that nobody works on a partition that it lost meanwhile.
            waiting: Called with the holder that the consumer waits for.

        Raises:
            NotOwnerError: it is not.
            KafkaError: the cluster does not answer.
            ProgressFormatError: the progress cannot be read.
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

        async def take_back(draining: Callable[[], bool]) -> tuple[TransactionalProducer, Progress | None]:
            return await self._take_back(lease, predecessor, confirm, draining)

        progress = found.progress
        if predecessor is not None and predecessor.holder in self._ended.get(lease.key, ()):
            progress = deaths.survived(progress, self._deaths.get(lease.key, {}))
        self._deaths[lease.key] = deaths.of(progress)
        window = Window(
            progress,
            memory=self._memory,
            prefetch=self._options.held_max,
            records_max=self._options.records_max,
            gap=found.gap,
        )

        def destination() -> tuple[str, int]:
            return self._progress.name, self._progress.home(lease.key)

        writer = ProgressWriter(
            lease,
            window,
            producer,
            destination,
            self._letters,
            take_back,
            self._explain,
            PartitionSends(self._states),
            options=self._options,
            parts=predecessor.parts if predecessor is not None else (),
        )
        return lease, window, writer

    async def _taken(
        self, lease: Lease, confirm: Callable[[], Awaitable[bool]], waiting: Callable[[str], None]
    ) -> tuple[TransactionalProducer, Progress | None]:
        """Wait until the lease is released, or its holder has been silent for too long; then fence, and read the lease again."""
        watch = self._watches.setdefault(
            lease.key, LeaseWatch(self._options.lease_timeout, self._options.lease_idle)
        )
        said = -math.inf
        await _confirmed(lease, confirm)
        while True:
            await reach("opening", _lane(lease))
            looked_at = clock.now()
            left, recorded = await self._look(lease, watch)
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

    async def _look(self, lease: Lease, watch: LeaseWatch) -> tuple[float, Progress | None]:
        """Return the seconds for which the lease must stay unchanged, and its content."""
        begun = clock.now()
        recorded, asked_at = await self._progress.look(lease.key)
        left = watch.look(recorded, begun, asked_at)
        ended = self._ended.get(lease.key, ())
        return (0.0 if recorded is not None and recorded.holder in ended else left), recorded

    def _forget(self, lease: Lease, recorded: Progress | None) -> None:
        """Forget former leases: behind the fence the record stays as it is until we write, and can name this one alone."""
        ended = self._ended.pop(lease.key, set())
        if recorded is not None and recorded.holder in ended:
            self._ended[lease.key] = {recorded.holder}

    async def _require_free(self, lease: Lease, watch: LeaseWatch) -> Progress | None:
        """Return what it says. A holder that wrote meanwhile would find out that it is fenced, and fence back."""
        left, recorded = await self._look(lease, watch)
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
        """Check membership, fence the partition, check membership again, and read the lease behind the fence.

        ``look`` reads the lease, and raises where it may not be taken. It is called before the fence where the look of ``looked_at`` is old, and
        behind it, because what the former holder acknowledged until then counts, and nothing after it can.
        """
        async with self._clients.turns:
            if clock.now() > looked_at + FRESH_S:
                try:
                    async with asyncio.timeout(LAST_LOOK_S):
                        await look()
                except TimeoutError as error:  # others wait for the turn
                    raise _HeldError(f"{lease} cannot be read within {LAST_LOOK_S:g} s") from error
            await _confirmed(lease, confirm)
            await reach("before-fence", _lane(lease))
            producer = TransactionalProducer(
                self._kafka,
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
        # The ID first: if the topic is created again meanwhile, positions of the new one come with the ID of the old, and
        # whoever watches the topic finds it out.
        identity = await self._cluster.topics.identity(topic)
        committed = await self._trusted(lease, recorded)
        start = await self._cluster.offsets.log_start(topic, partition)
        return Log(
            identity.topic_id, committed, start, await self._cluster.offsets.high_watermark(topic, partition)
        )

    async def _trusted(self, lease: Lease, recorded: Progress | None) -> int | None:
        """Return the group's offset. One that a foreign consumer committed counts as none: the record knows better."""
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
        """Fence again after a failed write, unless somebody else has written meanwhile; and return what was written last.

        The failure may be a fence. The record names the new holder, because a holder writes the lease before anything else. A draining
        holder is not assigned the partition any more. It continues until another consumer takes the lease. The work that its handlers
        finished must be written, and the next holder waits for that. The same holds for a holder that begins to drain while it asks. A consumer that was
        removed from the group and does not know it yet fences nobody. Its client learns it by the next heartbeat.

        The record is read before the fence too: where the failure was the fence of a living holder, that holder is left alone. A transaction of
        one's own that has not ended holds up this reading until it is fenced, so it is given up after a moment.

        Raises:
            LostError: somebody has taken it.
            NotOwnerError: it is not known yet how it goes on; to be tried again.
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
        """Return what may be behind progress that cannot be written."""
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
    """Name of the partition at fail points."""
    return f"{lease.group}/{lease}"


async def _confirmed(lease: Lease, confirm: Callable[[], Awaitable[bool]]) -> None:
    if not await confirm():
        raise NotOwnerError(f"{lease} is no longer assigned to this consumer")
