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
from typing import Final

from agents import journal
from agents.batch import FetchedBatch
from agents.cursor import Cursor
from agents.emitter import Emitter, Outputs
from agents.held import read_again
from agents.ownership import Ownership
from agents.path import Path
from conf import wire
from conf.settings import AddressSettings, Settings
from tables.cluster import Cluster
from tables.codec import FormatError
from tables.failpoints import reach
from tables.producer import TransactionalProducer
from tables.restore import ChangelogBounds
from tables.table import LaneTable, Restored, TableOptions

log: Final = logging.getLogger("ringfence.lane")

FENCE_LIMIT_S: Final = 30.0
QUESTION_LIMIT_S: Final = 15.0
_BEGIN_ANEW: Final = "begin anew under another app.id, which accepts all once more that is still in the input"
"""For one question to the cluster."""


class NotOwnerError(Exception):
    """The group does not confirm that this process may have the lane."""


class LaneRefusedError(Exception):
    """The lane must not run; the text names the way out."""


class TopicMissingError(Exception):
    """A topic that the lane needs does not exist (any more); it may come back."""


@dataclass(frozen=True, slots=True)
class Opened:
    """All that a lane works with until its next failure or close."""

    producer: TransactionalProducer
    table: LaneTable
    epoch: int
    cursors: dict[str, Cursor]
    """By topic: the input and the forward topic."""
    path: Path
    emitter: Emitter
    partition_counts: dict[str, int]
    topic_ids: dict[str, str]
    cluster: Cluster


class Opening:
    """Knows how to open one lane, any number of times."""

    def __init__(
        self, settings: Settings, address: AddressSettings, partition: int, cluster: Cluster
    ) -> None:
        app_id = settings.app.id
        self.name = wire.lane_name(address.name, partition)
        self.address = address
        self.partition = partition
        self.group_id = app_id
        self.changelog = wire.changelog_topic(app_id, address.name)
        self.forward_topic = wire.forward_topic(app_id, address.name)
        options = TableOptions(
            capacity=address.id_cache_size,
            resident_ids_max=settings.app.resident_ids_max,
            max_age_ms=round(address.id_max_age * 1000),
            persistent=address.persist_id_cache,
        )
        self.table = LaneTable(settings.state_dir / self.name, options)
        self._kafka = settings.kafka
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
        facts = await self._facts()
        producer = TransactionalProducer(
            self._kafka, self._transactional_id, self.name, min(facts.outputs.bytes_max.values())
        )
        try:
            await reach("before-fence", self.name)
            async with asyncio.timeout(FENCE_LIMIT_S):
                await producer.fence()
            await reach("after-fence", self.name)
            await self._confirm(ownership)
            bounds = await self._changelog_bounds(facts.delete_retention_s)
            await reach("restoring", self.name)
            epoch, restored = await self.table.open(self._kafka, self.changelog, self.partition, bounds)
            await reach("after-restore", self.name)
            self._compare_counts(facts.counts)
            cursors = {
                topic: await self._cursor(topic, facts)
                for topic in (self.address.input_topic, self.forward_topic)
            }
            await self._tell_journal(producer, cursors)
            async with asyncio.timeout(QUESTION_LIMIT_S):
                for cursor in cursors.values():
                    await cursor.begin(ownership)
        except BaseException as error:
            await producer.discard()
            if isinstance(error, FormatError):
                raise LaneRefusedError(
                    f"{self.changelog}/{self.partition}: {error}: run the version that wrote it, or a later one"
                ) from error
            raise
        self._say_open(restored, cursors[self.address.input_topic].next)
        path = Path(self.address, self.partition, facts.counts[self.address.input_topic], self.forward_topic)
        emitter = Emitter(self.address, self.forward_topic, facts.outputs)
        return Opened(
            producer, self.table, epoch, cursors, path, emitter, facts.counts, facts.topic_ids, self._cluster
        )

    async def read_again(self, held: FetchedBatch) -> FetchedBatch | None:
        """What was fetched before, as it stands in the log now; None = left to the consumer."""
        return await read_again(self._kafka, self._cluster, held)

    def _say_open(self, restored: Restored, next_offset: int) -> None:
        ring = self.table.ring
        covered = self.table.seconds_covered()
        log.info(
            "lane %s open: %d changelog records restored in %.2f s (RocksDB %s), ring %d of %d%s, next offset %d",
            self.name, restored.records, restored.seconds, "reused" if restored.reused else "new", len(ring),
            ring.capacity, "" if covered is None else f" covering {covered:.0f} s", next_offset,
        )  # fmt: skip

    async def _tell_journal(self, producer: TransactionalProducer, cursors: dict[str, Cursor]) -> None:
        """Write down that the ring knows less from here on, before anything is decided by it."""
        meta, address = self.table.meta, self.address
        event = journal.opening_event(meta, address.id_cache_size, persistent=address.persist_id_cache)
        if meta is None or event is None:
            return
        capacities = (meta.capacity, address.id_cache_size)
        next_offsets = {topic: each.next for topic, each in cursors.items()}
        told = journal.outgoing(
            producer.builder(), self.group_id, event, address.name, self.partition, capacities, next_offsets
        )
        async with asyncio.timeout(QUESTION_LIMIT_S):
            await producer.transact([told], {}, self.group_id)

    async def _confirm(self, ownership: Ownership) -> None:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            if not await ownership.confirm():
                raise NotOwnerError(
                    "the group does not confirm this worker's membership; a new assignment will come"
                )

    async def _facts(self) -> "_Facts":
        """What the cluster says of the lane's topics, asked for at each opening."""
        roles = self.address.topics(self.group_id)
        async with asyncio.timeout(QUESTION_LIMIT_S):
            counts = await self._cluster.partition_counts(list(roles.values()))
            for role, topic in roles.items():
                if topic not in counts:
                    raise TopicMissingError(
                        f"{role} {topic} does not exist: `ringfence topics create` makes it"
                    )
            configs = await self._cluster.topic_configs(list(roles.values()))
            topic_ids = await self._cluster.topic_ids([self.address.input_topic, self.forward_topic])
        inputs = counts[self.address.input_topic]
        for topic in (self.changelog, self.forward_topic):
            if counts[topic] != inputs:
                raise LaneRefusedError(
                    f"{self.address.input_topic} has {inputs} partitions, it had {counts[topic]} when this lane began, "
                    f"as {topic} still has: groups and IDs have moved to other partitions. Recreate "
                    f"{self.address.input_topic} with {counts[topic]} partitions, or {_BEGIN_ANEW}; only if "
                    f"nothing was processed yet, delete {topic} and run `ringfence topics create`"
                )
        for role in ("input topic", "accepted topic"):
            if "compact" in configs[roles[role]].cleanup_policy:
                raise LaneRefusedError(
                    f"{role} {roles[role]} is compacted, and compaction deletes messages of a group: "
                    "set its cleanup.policy to delete"
                )
        outputs = Outputs(counts, {topic: each.message_bytes_max for topic, each in configs.items()})
        kept = {each: counts[each] for each in (self.address.input_topic, self.address.accepted_topic)}
        return _Facts(kept, outputs, configs[self.changelog].delete_retention_s, topic_ids)

    def _compare_counts(self, counts: dict[str, int]) -> None:
        """A changed partition count moves groups to other lanes: their rings and their order would be lost."""
        meta = self.table.meta
        for topic, before in (meta.partition_counts if meta else {}).items():
            now = counts.get(topic, before)
            if now != before:
                raise LaneRefusedError(
                    f"{topic} has {now} partitions, it had {before} when this lane began: groups and IDs have moved to "
                    f"other partitions. Recreate {topic} with {before} partitions, or {_BEGIN_ANEW}"
                )

    async def _changelog_bounds(self, delete_retention_s: float) -> ChangelogBounds:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            return ChangelogBounds(
                await self._cluster.log_start(self.changelog, self.partition),
                await self._cluster.high_watermark(self.changelog, self.partition),
                delete_retention_s,
            )

    async def _cursor(self, topic: str, facts: "_Facts") -> Cursor:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            committed = await self._cluster.committed(topic, self.partition)
        next_offset = await self._next(topic, committed, facts)
        return Cursor(self.name, topic, self.partition, next_offset, facts.topic_ids[topic], committed)

    async def _next(self, topic: str, committed: int | None, facts: "_Facts") -> int:
        """First offset to process: the larger of the group's and the changelog's; none = the log's start."""
        meta = self.table.meta
        recorded = meta.next_offsets.get(topic) if meta else None
        async with asyncio.timeout(QUESTION_LIMIT_S):
            start = await self._cluster.log_start(topic, self.partition)
            if meta and meta.topic_ids.get(topic, facts.topic_ids[topic]) != facts.topic_ids[topic]:
                log.warning(
                    "lane %s: %s was deleted and created again: beginning at its start, %d; known IDs stay known",
                    self.name, topic, start,
                )  # fmt: skip
                return start
            end = await self._cluster.high_watermark(topic, self.partition)
            known = [each for each in (committed, recorded) if each is not None]
            if not known:
                return start
            next_offset = max(known)
            if next_offset > end:
                raise LaneRefusedError(
                    f"{topic}/{self.partition} ends at {end}, but this lane has processed it up to {next_offset}: it lost "
                    "its tail. What comes next at those offsets would be taken for processed: restore the topic, or "
                    f"{_BEGIN_ANEW}"
                )
            if committed is not None and committed > (recorded or 0):
                log.warning(
                    "lane %s: the group has committed %s/%d up to %d, %s knows it up to %d: it lost its tail, or somebody "
                    "moved the group's offset; resends of what lies between are accepted",
                    self.name, topic, self.partition, committed, self.changelog, recorded or 0,
                )  # fmt: skip
            if committed is None and next_offset:
                # The group's offsets have expired; the changelog's have not.
                log.info(
                    "lane %s: the group has no offset for %s; the changelog says %d",
                    self.name,
                    topic,
                    next_offset,
                )
        return next_offset


@dataclass(frozen=True, slots=True)
class _Facts:
    counts: dict[str, int]
    """Of input and accepted topic."""
    outputs: Outputs
    delete_retention_s: float
    topic_ids: dict[str, str]
