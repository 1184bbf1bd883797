"""Table of a lane and its restore, on disk or in memory, with the limits in force."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from agents.lane.cursor import next_offsets
from agents.lane.errors import QUESTION_LIMIT_S, LaneRefusedError
from agents.lane.opening.changelog_recovery import (
    Changelog,
    describe,
    describe_unlike,
    describe_unusable,
    find_lost,
    messages_behind,
    offsets_read_again,
    write_back,
)
from agents.lane.opening.identity import LaneIdentity
from agents.lane.opening.lane_checks import LaneChecks, TopicFacts
from agents.lane.opening.start_offsets import StartOffsets
from agents.lane.opening_limiter import OpeningLimiter
from agents.lane.state_folder import StateFolder, require_usable, usable
from agents.rules.agreement import Agreement
from agents.rules.lane_rules import Limits, limits_in_force, limits_of, recorded_limits, shown
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.concurrency.cooperative import TimeSlices
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.process.failpoints import reach
from ringfence_kafka.producer.shared_clients import ProducerClients
from ringfence_kafka.producer.transactional import TransactionalProducer
from ringfence_kafka.readers.log_reader import LogReader
from tables.change import Restored, TableOptions
from tables.restore import ChangelogBounds
from tables.rocksdb.errors import StateFolderError
from tables.table import LaneTable

log: Final = logging.getLogger("ringfence.lane")


def describe_store(restored: Restored, table: LaneTable) -> str:
    """Return the state of a RocksDB for the log."""
    if table.store.in_memory:
        return "in memory, not on disk"
    return f"RocksDB {'kept' if restored.kept else 'reused' if restored.reused else 'new'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """Parts that the lanes of a worker share."""

    settings: Settings
    cluster: Cluster
    agreement: Agreement
    reader: LogReader
    """Reader of changelogs."""
    slices: TimeSlices = field(default_factory=TimeSlices)
    """Time slices of the process, so that other lanes continue while many lanes open."""
    places: OpeningLimiter = field(default_factory=OpeningLimiter)
    clients: ProducerClients | None = None
    group_watch: GroupWatch | None = None
    """Decides which committed offsets are trusted; None = all of them."""
    state_folder: StateFolder | None = None
    """Decides what happens if a lane's folder cannot be written; None = the lane waits until it can."""


class TableOpening:
    """Opens the table of one lane, any number of times."""

    def __init__(
        self,
        lane: LaneIdentity,
        shared: SharedParts,
        checks: LaneChecks,
        note: Callable[[str], None],
        table: LaneTable | None,
    ) -> None:
        """Prepare the opening. ``table``: table of the lane from an earlier assignment; ``note``: receives texts for status."""
        self._lane = lane
        self._settings = shared.settings
        self._cluster = shared.cluster
        self._checks = checks
        self._agreement = shared.agreement
        self._note = note
        self._folder = shared.state_folder
        self._reader = shared.reader
        self._slices = shared.slices
        self._own_limits = limits_of(lane.address)
        self.table = table or self._new_table(self._own_limits)
        self.starts = StartOffsets(
            lane, shared.cluster, shared.group_watch, lambda: self.limits.persist_id_cache, note
        )

    def _new_table(self, limits: Limits) -> LaneTable:
        options = TableOptions(
            capacity=limits.capacity,
            resident_ids_max=self._settings.app.resident_ids_max,
            max_age_ms=round(limits.id_max_age * 1000),
            promise=limits.promise,
            persistent=limits.persist_id_cache,
            app=self._lane.app_id,
            address=self._lane.address.name,
            rules=self._checks.rules,
            lanes=self._lane.address.lanes,
        )
        return LaneTable(self._settings.state_dir / self._lane.name, options, self._slices)

    @property
    def limits(self) -> Limits:
        """Limits in force. While live workers disagree these are the recorded limits."""
        options = self.table.options
        return limits_in_force(options.capacity, options.max_age_ms, options.promise, options.persistent)

    @property
    def keeps_limits(self) -> bool:
        """Whether the ring keeps recorded limits that differ from this worker's configuration."""
        return self.limits != self._own_limits

    async def restore(self, producer: TransactionalProducer, facts: TopicFacts) -> tuple[int, Restored]:
        """Open the table on disk. Open it in memory if its folder cannot be written and no other worker can take the lane."""
        folder = self._folder
        if folder is None:
            return await self._restored(producer, facts)
        if self.table.store.in_memory and usable(self.table.store.path):
            self.table.store.keep_in_memory(False)
        try:
            if self.table.store.broken:
                require_usable(self.table.store.path)
            found = await self._restored(producer, facts)
        except StateFolderError as error:
            name, ids = self._lane.name, self.limits.capacity
            if self.table.store.in_memory or not await folder.failed(name, ids, error):
                raise
            self.table.store.keep_in_memory(True)
            return await self._restored(producer, facts)
        if not self.table.store.in_memory:
            folder.on_disk(self._lane.name)
        return found

    async def _restored(self, producer: TransactionalProducer, facts: TopicFacts) -> tuple[int, Restored]:
        bounds = await self._recovered_bounds(producer, facts)
        await reach("restoring", self._lane.name)
        return await self._open_table(bounds)

    async def _recovered_bounds(self, producer: TransactionalProducer, facts: TopicFacts) -> ChangelogBounds:
        """Return the bounds of the changelog, after the IDs of RocksDB are restored to a changelog that was deleted."""
        bounds = await self._changelog_bounds(facts.delete_retention_s)
        topic_id = facts.topic_ids[self._lane.changelog]
        changelog = Changelog(self._lane.changelog, self._lane.number, topic_id, bounds)
        name = self._lane.address.name
        lost = await find_lost(self.table, changelog, self._reader, self._lane.app_id, name)
        if lost is None:
            return bounds
        if not lost.usable:
            self._note(describe_unusable(self._lane.name, changelog, lost))
            return bounds
        ids = lost.stored.meta.topic_ids
        topic = self._lane.address.input_topic
        if ids.get(topic, "") not in {"", facts.topic_ids[topic]}:
            return bounds  # the input was created again too: a fresh start is intended
        try:
            self._checks.require_counts(facts, lost.stored.meta)
        except LaneRefusedError as error:
            raise LaneRefusedError(describe_unlike(changelog, self.table.store.path, error)) from error
        cursors = await self.starts.cursors(facts, self.table.meta, lost)
        nexts = {place: cursor.next for place, cursor in cursors.items()}
        found = await write_back(
            self.table,
            lost,
            changelog,
            producer,
            next_offsets(cursors, self._lane.address.lanes),
            facts.topic_ids,
            topic,
            offsets_read_again(lost.stored.meta, nexts, facts.topic_ids),
            self._lane.app_id,
        )
        behind = messages_behind(lost.stored.meta, nexts, facts.topic_ids)
        self._note(describe(self._lane.name, changelog, found, behind))
        return await self._changelog_bounds(facts.delete_retention_s)

    async def _open_table(self, bounds: ChangelogBounds) -> tuple[int, Restored]:
        """Open the table with the limits in force. The recorded limits are known only after the meta record is read."""
        found = await self.table.open(self._reader, self._lane.changelog, self._lane.number, bounds)
        meta = self.table.meta
        limits = self._own_limits if meta is None else recorded_limits(meta)
        unlike = (
            [] if limits == self._own_limits else await self._agreement.on_limits(self._lane.address.name)
        )
        limits = limits if unlike else self._own_limits
        if limits == self.limits:
            return found
        if unlike:
            log.warning(
                "lane %s keeps its recorded limits (%s); this worker's file has %s. %s. They change when "
                "all live workers have the same file",
                self._lane.name, shown(limits), shown(self._own_limits), "; ".join(unlike),
            )  # fmt: skip
        in_memory = self.table.store.in_memory
        await self.table.dispose()
        self.table = self._new_table(limits)
        self.table.store.keep_in_memory(in_memory)
        return await self.table.open(self._reader, self._lane.changelog, self._lane.number, bounds)

    async def warm_up(self) -> Restored:
        """Restore the committed state while another worker owns the lane. The result is a prefix of the changelog, like any RocksDB."""
        facts = await self._checks.facts()
        async with asyncio.timeout(QUESTION_LIMIT_S):
            start = await self._cluster.offsets.log_start(self._lane.changelog, self._lane.number)
            end = await self._cluster.offsets.stable_end(self._lane.changelog, self._lane.number)
        bounds = ChangelogBounds(start, end, facts.delete_retention_s)
        _, restored = await self.table.open(self._reader, self._lane.changelog, self._lane.number, bounds)
        log.info(
            "lane %s restored ahead of its assignment: %d changelog records in %.2f s (%s)",
            self._lane.name, restored.records, restored.seconds, describe_store(restored, self.table),
        )  # fmt: skip
        return restored

    async def _changelog_bounds(self, delete_retention_s: float) -> ChangelogBounds:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            start, end = await asyncio.gather(
                self._cluster.offsets.log_start(self._lane.changelog, self._lane.number),
                self._cluster.offsets.high_watermark(self._lane.changelog, self._lane.number),
            )
            return ChangelogBounds(start, end, delete_retention_s)
