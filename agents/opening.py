"""Opening a lane, in the one order that is right.

(0) the predecessor in this process is closed; (a) this process is still a member of the generation that was
given the lane: asked before and after the fence, since a woken zombie must not steal its lane back; the fence
itself: InitProducerId ends the former owner's transaction and all its later writes; (b) restore to the
changelog's high watermark; (c) ``next`` read *again*, now: what was read before the fence may be stale. Only then
is anything processed.
"""

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from agents.emitter import Emitter
from conf import wire
from conf.settings import AddressSettings, KafkaSettings
from tables.cluster import Cluster
from tables.codec import FormatError
from tables.failpoints import reach
from tables.producer import TransactionalProducer
from tables.restore import ChangelogBounds
from tables.table import LaneTable

log: Final = logging.getLogger("ringfence.lane")

FENCE_LIMIT_S: Final = 30.0
QUESTION_LIMIT_S: Final = 15.0
"""For one question to the cluster."""


class NotOwnerError(Exception):
    """The group does not confirm that this process may have the lane."""


class LaneRefusedError(Exception):
    """The lane must not run; the text names the way out."""


class TopicMissingError(Exception):
    """A topic that the lane needs does not exist (any more); it may come back."""


class Ownership(Protocol):
    """What a lane asks of the consumer group; one object for each assignment."""

    async def confirm(self) -> bool:
        """Whether the broker says, now, that this process is a member of the assignment's generation."""
        ...

    async def rewind(self, topic: str, partition: int, offset: int) -> int:
        """Fetch from ``offset`` again; returns the number that batches fetched from then on carry at least."""
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """All that a lane works with until its next failure or close."""

    producer: TransactionalProducer
    table: LaneTable
    epoch: int
    next: int
    emitter: Emitter
    partition_counts: dict[str, int]
    cluster: Cluster


class Opening:
    """Knows how to open one lane, any number of times."""

    def __init__(
        self,
        kafka: KafkaSettings,
        app_id: str,
        address: AddressSettings,
        partition: int,
        cluster: Cluster,
        state_dir: Path,
        resident_ids_max: int,
    ) -> None:
        self.name = wire.lane_name(address.name, partition)
        self.address = address
        self.partition = partition
        self.group_id = app_id
        self.changelog = wire.changelog_topic(app_id, address.name)
        self.table = LaneTable(state_dir / self.name, address.id_cache_size, resident_ids_max)
        self._kafka = kafka
        self._cluster = cluster
        self._transactional_id = wire.transactional_id(app_id, address.name, partition)

    async def open(self, ownership: Ownership) -> Opened:
        """Open the lane.

        Raises:
            NotOwnerError: the group does not confirm the assignment; it will be made anew.
            LaneRefusedError: a person has to act.
            Exception: anything that may pass: broker away, time-out, topic missing.
        """
        await reach("opening", self.name)
        await self._confirm(ownership)
        producer = TransactionalProducer(self._kafka, self._transactional_id, self.name)
        try:
            await reach("before-fence", self.name)
            async with asyncio.timeout(FENCE_LIMIT_S):
                await producer.fence()
            await reach("after-fence", self.name)
            await self._confirm(ownership)
            counts = await self._partition_counts()
            bounds = await self._changelog_bounds()
            await reach("restoring", self.name)
            epoch, restored = await self.table.open(self._kafka, self.changelog, self.partition, bounds)
            await reach("after-restore", self.name)
            self._compare_counts(counts)
            next_offset = await self._next()
        except BaseException as error:
            await producer.discard()
            if isinstance(error, FormatError):
                raise LaneRefusedError(
                    f"{self.changelog}/{self.partition}: {error}: run the version that wrote it, or a later one"
                ) from error
            raise
        log.info(
            "lane %s open: %d changelog records restored in %.2f s (RocksDB %s), ring %d of %d, next offset %d",
            self.name, restored.records, restored.seconds, "reused" if restored.reused else "new",
            len(self.table.ring), self.table.ring.capacity, next_offset,
        )  # fmt: skip
        emitter = Emitter(self.address.accepted_topic, counts[self.address.accepted_topic])
        return Opened(producer, self.table, epoch, next_offset, emitter, counts, self._cluster)

    async def _confirm(self, ownership: Ownership) -> None:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            if not await ownership.confirm():
                raise NotOwnerError(
                    "the group does not confirm this worker's membership; a new assignment will come"
                )

    async def _partition_counts(self) -> dict[str, int]:
        topics = [self.address.input_topic, self.address.accepted_topic, self.changelog]
        async with asyncio.timeout(QUESTION_LIMIT_S):
            counts = await self._cluster.partition_counts(topics)
        for topic in topics:
            if topic not in counts:
                raise TopicMissingError(f"topic {topic} does not exist: `ringfence topics create` makes it")
        changelog = counts.pop(self.changelog)
        if changelog <= self.partition:
            raise LaneRefusedError(
                f"{self.changelog} has {changelog} partitions, {self.address.input_topic} has "
                f"{counts[self.address.input_topic]}: give the changelog as many"
            )
        return counts

    def _compare_counts(self, counts: dict[str, int]) -> None:
        """A changed partition count moves groups to other lanes: their rings and their order would be lost."""
        meta = self.table.meta
        for topic, before in (meta.partition_counts if meta else {}).items():
            now = counts.get(topic, before)
            if now != before:
                raise LaneRefusedError(
                    f"{topic} has {now} partitions, it had {before} when this lane began: groups and IDs have moved to "
                    f"other partitions. Recreate {topic} with {before} partitions, or begin anew under another app.id"
                )

    async def _changelog_bounds(self) -> ChangelogBounds:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            return ChangelogBounds(
                await self._cluster.log_start(self.changelog, self.partition),
                await self._cluster.high_watermark(self.changelog, self.partition),
                await self._cluster.delete_retention_s(self.changelog),
            )

    async def _next(self) -> int:
        """First offset to process: the larger of the group's and the changelog's; none = the log's start."""
        topic = self.address.input_topic
        async with asyncio.timeout(QUESTION_LIMIT_S):
            committed = await self._cluster.committed(topic, self.partition)
            end = await self._cluster.high_watermark(topic, self.partition)
            known = [each for each in (committed, self._recorded_next()) if each is not None]
            if not known:
                return await self._cluster.log_start(topic, self.partition)
        next_offset = max(known)
        if next_offset > end:
            raise LaneRefusedError(
                f"{topic}/{self.partition} ends at {end}, but this lane has processed it up to {next_offset}: the topic "
                "was deleted and created again, or lost its tail. Begin anew under another app.id, or restore the topic"
            )
        return next_offset

    def _recorded_next(self) -> int | None:
        meta = self.table.meta
        return meta.next_offsets.get(self.address.input_topic) if meta else None
