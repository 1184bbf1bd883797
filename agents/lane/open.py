"""Opening a lane, in the one order that is right.

(0) the predecessor in this process is closed; (a) this process is still a member of the generation that was
given the lane: asked before and after the fence, since a woken zombie must not steal its lane back; the fence
itself: InitProducerId ends the former owner's transaction and all its later writes; (b) restore to the
changelog's high watermark; (c) ``next`` read *again*, now: what was read before the fence may be stale. Only then
is anything processed.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka import TopicPartition

from agents.batch.batch import FetchedBatch
from agents.decision.decide import Path
from agents.lane import journal
from agents.lane.assignment import Ownership
from agents.lane.changelog_recovery import Changelog, Lost, describe, describe_unusable, find_lost, write_back
from agents.lane.cursor import Cursor
from agents.lane.opening_limiter import OpeningLimiter
from agents.lane.reread import read_again
from agents.lane.state_folder import StateFolder, require_usable, usable
from agents.lane.topic_facts import LaneRefusedError, TopicFacts, ask
from agents.output.build import Emitter, Outputs
from agents.output.native_build import NativePath
from agents.rules.agreement import Agreement
from agents.rules.lane_rules import (
    Limits,
    limits_of,
    recorded_limits,
    rules_fault,
    rules_of,
    shown,
    with_limits,
)
from agents.topic_checks.changelog import newest_meta
from agents.topic_checks.topics import (
    BEGIN_ANEW,
    count_faults,
)
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.concurrency.cooperative import TimeSlices
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import ForeignChangelogError
from ringfence_kafka.groups.committed_offsets import Committed
from ringfence_kafka.ownership.partition_state import NotOwnerError
from ringfence_kafka.process.failpoints import reach
from ringfence_kafka.producer.shared_clients import ProducerClients
from ringfence_kafka.producer.transactional import FENCE_LIMIT_S, TransactionalProducer
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers.log_reader import LogReader
from tables.codec import FormatError, Meta
from tables.restore import ChangelogBounds, require_own
from tables.store import StateFolderError
from tables.table import LaneTable, Restored, TableOptions

log: Final = logging.getLogger("ringfence.lane")

QUESTION_LIMIT_S: Final = 15.0
"""For one question to the cluster."""


class TopicChangedError(Exception):
    """A topic takes larger or smaller records than when the lane was opened: it must be opened anew to go by it."""


def require_sizes(known: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Compare the ``max.message.bytes`` of topics with those of the opening; a topic that is missing now is not compared.

    Raises:
        TopicChangedError: one has changed.
    """
    changed = [
        f"{name} takes {now[name]} bytes" for name in known if now.get(name, known[name]) != known[name]
    ]
    if changed:
        raise TopicChangedError(f"max.message.bytes has changed: {', '.join(changed)} now")


class ChangelogRecreatedError(Exception):
    """The changelog is another topic than when the lane was opened: the lane must reopen to write its IDs into it."""


class LimitsAgreedError(Exception):
    """All live workers state the same new limits: the lane must reopen to apply them."""


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
    native_path: NativePath
    """Asked before both."""
    partition_counts: dict[str, int]
    """Of input and accepted topic, and of the accepted topics that parts of transactions may go to."""
    topic_ids: dict[str, str]
    cluster: Cluster
    outputs: Outputs
    """As they were when the lane was opened."""


def _store(restored: Restored, table: LaneTable) -> str:
    """Name the state of a RocksDB for the log. Its files may be in memory."""
    if table.in_memory:
        return "in memory, not on disk"
    return f"RocksDB {'kept' if restored.kept else 'reused' if restored.reused else 'new'}"


class Opening:
    """Knows how to open one lane, any number of times."""

    def __init__(
        self,
        settings: Settings,
        address: AddressSettings,
        partition: int,
        cluster: Cluster,
        *,
        doubtful: bool = False,
        denied: Callable[[], Sequence[str]] = tuple,
        slices: TimeSlices | None = None,
        table: LaneTable | None = None,
        places: OpeningLimiter | None = None,
        clients: ProducerClients | None = None,
        reader: LogReader | None = None,
        agreement: Agreement | None = None,
        group_watch: GroupWatch | None = None,
        state_folder: StateFolder | None = None,
    ) -> None:
        """Nothing happens yet.

        Args:
            settings: Whose lane.
            address: Its address.
            partition: Its number.
            cluster: Is asked.
            doubtful: Something was found wrong with the address: look at the changelog before the first fence.
            denied: Rights that are known to be missing, a line each.
            slices: Of the process: however many lanes open, those that are open go on.
            table: The lane's from when it was here before, to be gone on with.
            places: Of the worker: so many of its lanes open at a time.
            clients: Of the worker: connections that producers of many lanes share.
            reader: Of the worker: reads changelogs.
            agreement: Statements of live workers; None = this worker is alone.
            group_watch: Watch of the workers' group, which says whose offsets are followed; None = all are.
            state_folder: Says what happens if the lane's folder cannot be written; None = the lane waits until it can.
        """
        app_id = settings.app.id
        self._doubtful = doubtful
        self._denied = denied
        self.name = wire_names.lane_name(address.name, partition)
        self.address = address
        self.partition = partition
        self.group_id = app_id
        self.changelog = wire_names.changelog_topic(app_id, address.name)
        self.forward_topic = wire_names.forward_topic(app_id, address.name)
        self._targets = settings.transaction_targets(address)
        """Other addresses that parts of its transactions may go to."""
        self.chained = settings.feeder(address) is not None
        self._rules = rules_of(address, self._targets)
        self.note = ""
        """IDs that are kept and forgotten since the changelog was deleted, for status; empty = it was not."""
        self.rules_fault = ""
        """How the lane's rules differ from this worker's; empty = they do not, or it is not known yet."""
        self._held: Mapping[str, Cursor] = {}
        """The cursors of the last opening, which say what this process committed last."""
        self._own_limits = limits_of(address)
        self._agreement = agreement or Agreement(settings)
        self._group_watch = group_watch
        self._state_folder = state_folder
        self._state_dir, self._slices = settings.state_dir, slices
        self._resident_ids_max = settings.app.resident_ids_max
        self.table = table or self._new_table(self._own_limits)
        self._kafka = settings.kafka
        self._cluster = cluster
        self._places = places or OpeningLimiter()
        self._clients = clients
        self._reader = reader or LogReader(settings.kafka)
        self._transactional_id = wire_names.transactional_id(app_id, address.name, partition)

    def _new_table(self, limits: Limits) -> LaneTable:
        options = TableOptions(
            capacity=limits.id_cache_size,
            resident_ids_max=self._resident_ids_max,
            max_age_ms=round(limits.id_max_age * 1000),
            persistent=limits.persist_id_cache,
            app=self.group_id,
            address=self.address.name,
            rules=self._rules,
        )
        return LaneTable(self._state_dir / self.name, options, self._slices)

    @property
    def limits(self) -> Limits:
        """The limits in force: the recorded ones while live workers do not agree."""
        options = self.table.options
        return Limits(options.capacity, options.max_age_ms / 1000, options.persistent)

    @property
    def keeps_limits(self) -> bool:
        """Whether the ring keeps recorded limits that are not those of this worker's file."""
        return self.limits != self._own_limits

    async def open(self, ownership: Ownership) -> Opened:
        """Open the lane.

        Raises:
            NotOwnerError: the group does not confirm the assignment; it will be made anew.
            LaneRefusedError: a person has to act.
            Exception: anything that may pass: broker away, time-out, topic missing.
        """
        async with self._places.place(self.name):
            return await self._open(ownership)

    async def _open(self, ownership: Ownership) -> Opened:
        await reach("opening", self.name)
        await self._confirm(ownership)
        facts = await self._facts()
        if self._doubtful:
            await self._look_before(facts)
        producer = TransactionalProducer(
            self._kafka, self._transactional_id, self.name, min(facts.outputs.bytes_max.values()), clients=self._clients,
        )  # fmt: skip
        try:
            await reach("before-fence", self.name)
            await producer.fence(FENCE_LIMIT_S)
            await reach("after-fence", self.name)
            await self._confirm(ownership)
            epoch, restored = await self._restored_table(producer, facts)
            await reach("after-restore", self.name)
            self._require_counts(facts, self.table.meta)
            await self._require_rules(self.table.meta)
            cursors = await self._cursors(facts)
            await self._set_back(producer, cursors)
            await self._tell_journal(producer, cursors, facts.topic_ids)
            await self._begin(cursors, ownership)
        except BaseException as error:
            await producer.discard()
            self._doubtful = isinstance(error, LaneRefusedError | FormatError | ForeignChangelogError)
            if isinstance(error, FormatError | ForeignChangelogError):
                raise self._unusable(error) from error
            raise
        self._held = cursors
        self._doubtful = False
        self._say_open(restored, cursors[self.address.input_topic].next)
        accepted = [address_settings.accepted_topic for address_settings in (self.address, *self._targets)]
        counts = {name: facts.counts[name] for name in (self.address.input_topic, *accepted)}
        address = with_limits(self.address, self.limits)
        path = Path(
            address,
            self.partition,
            counts[self.address.input_topic],
            self.forward_topic,
            self._targets,
        )
        emitter = Emitter(address, self.forward_topic, facts.outputs, self._targets, chained=self.chained)
        native_path = NativePath(
            address, self.partition, counts, self.changelog, facts.outputs, emitter, producer.form()
        )
        return Opened(
            producer,
            self.table,
            epoch,
            cursors,
            path,
            emitter,
            native_path,
            counts,
            facts.topic_ids,
            self._cluster,
            facts.outputs,
        )

    async def _restored_table(
        self, producer: TransactionalProducer, facts: TopicFacts
    ) -> tuple[int, Restored]:
        """Open the table; if its folder cannot be written, and no other worker can take the lane, in memory."""
        folder = self._state_folder
        if folder is None:
            return await self._restored(producer, facts)
        if self.table.in_memory and usable(self.table.path):
            self.table.keep_in_memory(False)
        try:
            if self.table.broken:
                require_usable(self.table.path)
            found = await self._restored(producer, facts)
        except StateFolderError as error:
            if self.table.in_memory or not await folder.failed(
                self.name, self.table.path, self.limits.id_cache_size, error
            ):
                raise
            self.table.keep_in_memory(True)
            return await self._restored(producer, facts)
        if not self.table.in_memory:
            folder.on_disk(self.name)
        return found

    async def _restored(self, producer: TransactionalProducer, facts: TopicFacts) -> tuple[int, Restored]:
        bounds = await self._recovered_bounds(producer, facts)
        await reach("restoring", self.name)
        return await self._open_table(bounds)

    async def _recovered_bounds(self, producer: TransactionalProducer, facts: TopicFacts) -> ChangelogBounds:
        """Return the bounds of the changelog, after RocksDB's IDs are back in one that was deleted."""
        bounds = await self._changelog_bounds(facts.delete_retention_s)
        topic_id = facts.topic_ids[self.changelog]
        changelog = Changelog(self.changelog, self.partition, topic_id, bounds)
        name = self.address.name
        lost = await find_lost(self.table, changelog, self._reader, self.group_id, name)
        if lost is None:
            return bounds
        if not lost.usable:
            self.note = describe_unusable(self.name, changelog, lost)
            return bounds
        ids = lost.stored.meta.topic_ids
        if ids.get(self.address.input_topic, "") not in {"", facts.topic_ids[self.address.input_topic]}:
            return bounds  # the input is another one, too: somebody began anew
        self._require_counts(facts, lost.stored.meta)
        cursors = await self._cursors(facts, lost)
        found = await write_back(
            self.table,
            lost,
            changelog,
            producer,
            {topic: cursor.next for topic, cursor in cursors.items()},
            facts.topic_ids,
            self.address.input_topic,
            self.group_id,
        )
        self.note = describe(self.name, changelog, found)
        return await self._changelog_bounds(facts.delete_retention_s)

    async def _open_table(self, bounds: ChangelogBounds) -> tuple[int, Restored]:
        """Open the table with the limits in force. Before the meta record is read nobody knows the recorded ones."""
        found = await self.table.open(self._reader, self.changelog, self.partition, bounds)
        meta = self.table.meta
        limits = self._own_limits if meta is None else recorded_limits(meta)
        unlike = [] if limits == self._own_limits else await self._agreement.on_limits(self.address.name)
        limits = limits if unlike else self._own_limits
        if limits == self.limits:
            return found
        if unlike:
            log.warning(
                "lane %s keeps its recorded limits (%s); this worker's file says %s. %s. They change when all live workers have the same file",
                self.name, shown(limits), shown(self._own_limits), "; ".join(unlike),
            )  # fmt: skip
        in_memory = self.table.in_memory
        await self.table.dispose()
        self.table = self._new_table(limits)
        self.table.keep_in_memory(in_memory)
        return await self.table.open(self._reader, self.changelog, self.partition, bounds)

    async def warm_up(self) -> Restored:
        """Bring the table to what is committed now, while the lane is somebody else's: its opening reads only what comes until then.

        It is a prefix of the changelog, as any RocksDB is. Nobody is fenced, and nothing is written to the cluster.

        Raises:
            Exception: it cannot be done now. The opening will say why.
        """
        async with self._places.place(self.name):
            return await self._warm_up()

    async def _warm_up(self) -> Restored:
        facts = await self._facts()
        async with asyncio.timeout(QUESTION_LIMIT_S):
            start = await self._cluster.offsets.log_start(self.changelog, self.partition)
            end = await self._cluster.offsets.stable_end(self.changelog, self.partition)
        bounds = ChangelogBounds(start, end, facts.delete_retention_s)
        _, restored = await self.table.open(self._reader, self.changelog, self.partition, bounds)
        log.info(
            "lane %s restored before it is ours: %d changelog records in %.2f s (%s)",
            self.name, restored.records, restored.seconds, _store(restored, self.table),
        )  # fmt: skip
        return restored

    async def regain(self, ownership: Ownership, opened: Opened) -> None:
        """Go on with what stayed open over a rebalance, by a new assignment.

        Whether somebody had the lane in between is not asked: who had it has fenced the producer, and what we write next is
        refused. What is decided until then is decided by state that nothing has followed.

        Raises:
            NotOwnerError: the group does not confirm the assignment; it will be made anew.
            TopicRecreatedError: an input is another topic of that name.
            Exception: anything that may pass.
        """
        topic_ids, _ = await asyncio.gather(self._input_ids(opened), self._confirm(ownership))
        for cursor in opened.cursors.values():
            cursor.require_topic(topic_ids)
        await self._begin(opened.cursors, ownership)

    async def _input_ids(self, opened: Opened) -> dict[str, str]:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            return await self._cluster.topics.ids(list(opened.cursors))

    async def _begin(self, cursors: Mapping[str, Cursor], ownership: Ownership) -> None:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            await asyncio.gather(*(cursor.begin(ownership) for cursor in cursors.values()))

    async def read_again(self, held: FetchedBatch) -> FetchedBatch | None:
        """What was fetched before, as it stands in the log now; None = left to the consumer."""
        return await read_again(self._kafka, self._cluster, held)

    def _say_open(self, restored: Restored, next_offset: int) -> None:
        ring = self.table.ring
        covered = self.table.seconds_covered()
        store = _store(restored, self.table)
        log.info(
            "lane %s open: %d changelog records restored in %.2f s (%s), ring %d of %d%s, next offset %d",
            self.name, restored.records, restored.seconds, store, len(ring),
            ring.capacity, "" if covered is None else f" covering {covered:.0f} s", next_offset,
        )  # fmt: skip

    async def _tell_journal(
        self, producer: TransactionalProducer, cursors: dict[str, Cursor], topic_ids: Mapping[str, str]
    ) -> None:
        """Write down that the ring knows less from here on, before anything is decided by it."""
        meta, address = self.table.meta, self.address
        size = self.limits.id_cache_size
        event = journal.opening_event(meta, size, persistent=self.limits.persist_id_cache)
        if event is None and size != address.id_cache_size:
            # The reconciliation run has a file too: it must not take that file's size for this ring's.
            event = journal.RingEvent.RESIZED
        if meta is None or event is None:
            return
        capacities = (meta.capacity, size)
        next_offsets = {topic: cursor.next for topic, cursor in cursors.items()}
        told = journal.outgoing(
            producer.builder(),
            self.group_id,
            event,
            address.name,
            self.partition,
            capacities,
            next_offsets,
            topic_ids,
        )
        async with asyncio.timeout(QUESTION_LIMIT_S):
            await producer.transact([told], {}, self.group_id)

    async def _confirm(self, ownership: Ownership) -> None:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            if not await ownership.confirm():
                raise NotOwnerError(
                    "the group does not confirm this worker's membership; a new assignment will come"
                )

    async def _facts(self) -> TopicFacts:
        """What the cluster says of the lane's topics, asked for at each opening."""
        async with asyncio.timeout(QUESTION_LIMIT_S):
            return await ask(self._cluster, self.group_id, self.address, self._targets, self._denied)

    async def _look_before(self, facts: TopicFacts) -> None:
        """What has kept this lane from opening, asked again without a fence: whose lane it is, it would disturb.

        Raises:
            LaneRefusedError: it is still there.
        """
        async with asyncio.timeout(QUESTION_LIMIT_S):
            meta = await newest_meta(self._cluster, self.changelog, self.partition)
        if meta is None:
            return
        try:
            require_own(meta, self.group_id, self.address.name, f"{self.changelog}/{self.partition}")
        except ForeignChangelogError as error:
            raise self._unusable(error) from error
        self._require_counts(facts, meta)
        await self._require_rules(meta)

    def _unusable(self, error: Exception) -> LaneRefusedError:
        if isinstance(error, FormatError):
            return LaneRefusedError(
                f"{self.changelog}/{self.partition}: {error}: run the version that wrote it. The lane's messages wait, and none is lost"
            )
        return LaneRefusedError(str(error))

    def _require_counts(self, facts: TopicFacts, meta: Meta | None) -> None:
        if meta is not None and (faults := count_faults(self.address, facts.counts, [meta], self._targets)):
            raise LaneRefusedError("; ".join(faults))

    async def _require_rules(self, meta: Meta | None) -> None:
        """Rules that the lane has recorded decide; before that all live workers must state the same."""
        recorded = meta.rules if meta is not None else {}
        name = self.address.name
        fault = rules_fault(name, recorded, self._rules)
        if not recorded:
            fault = await self._agreement.unlike_rules(name, self._rules)
        self.rules_fault = fault or ""
        if fault is not None:
            raise LaneRefusedError(fault)

    async def _changelog_bounds(self, delete_retention_s: float) -> ChangelogBounds:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            start, end = await asyncio.gather(
                self._cluster.offsets.log_start(self.changelog, self.partition),
                self._cluster.offsets.high_watermark(self.changelog, self.partition),
            )
            return ChangelogBounds(start, end, delete_retention_s)

    async def _cursors(self, facts: TopicFacts, lost: Lost | None = None) -> dict[str, Cursor]:
        """Return where the lane continues; ``lost``: its changelog was deleted, and RocksDB is as far as it was."""
        topics = (self.address.input_topic, self.forward_topic)
        found = await asyncio.gather(*(self._cursor(topic, facts, lost) for topic in topics))
        return dict(zip(topics, found, strict=True))

    async def _cursor(self, topic: str, facts: TopicFacts, lost: Lost | None) -> Cursor:
        meta = self.table.meta if lost is None else lost.stored.meta
        async with asyncio.timeout(QUESTION_LIMIT_S):
            noted = await self._cluster.groups.committed(topic, self.partition)
            if (
                lost is not None
                and noted is not None
                and noted.offset <= lost.stored.meta.next_offsets.get(topic, 0)
            ):
                # RocksDB may be ahead of a cluster that was restored from a copy: only the cluster says which outputs are there.
                committed: int | None = noted.offset
            else:
                committed = await self._trusted(topic, noted, meta)
        if lost is not None:
            own = {} if committed is None else {topic: committed}
            meta = lost.stored.meta._replace(
                next_offsets=own if lost.meta is None else lost.meta.next_offsets
            )
        next_offset = await self._next(topic, committed, facts, meta)
        distrusts = noted is not None and committed != noted.offset
        topic_id = facts.topic_ids[topic]
        cursor = Cursor(
            self.name, topic, self.partition, next_offset, topic_id, next_offset if distrusts else committed
        )
        cursor.distrusts = distrusts
        return cursor

    async def _trusted(self, topic: str, noted: Committed | None, meta: Meta | None) -> int | None:
        """Return the group's offset. One that a foreign consumer committed is not followed: the changelog knows better."""
        recorded = meta.next_offsets.get(topic) if meta else None
        if noted is None or self._group_watch is None:
            return None if noted is None else noted.offset
        held = self._held.get(topic)
        if held is not None and noted.offset == held.next:
            return noted.offset  # this process committed it, also where the changelog has lost its tail
        why = await self._group_watch.distrust(topic, self.partition, noted, recorded)
        if not why:
            return noted.offset
        before = self._group_watch.before(topic, self.partition) if recorded is None else None
        log.error(
            "lane %s: the offset %d of the group %s for %s/%d is not followed: %s; the lane continues at %s",
            self.name, noted.offset, self.group_id, topic, self.partition, why,
            f"{recorded}, where its changelog is" if recorded is not None
            else "the start of the log" if before is None else before.offset,
        )  # fmt: skip
        return recorded if before is None else before.offset

    async def _set_back(self, producer: TransactionalProducer, cursors: Mapping[str, Cursor]) -> None:
        """Commit where the lane is where the group says otherwise: lags, and the lane's own comparisons, go by the group."""
        offsets = {
            TopicPartition(topic, self.partition): cursor.next
            for topic, cursor in cursors.items()
            if cursor.distrusts
        }
        if offsets:
            async with asyncio.timeout(QUESTION_LIMIT_S):
                await producer.transact([], offsets, self.group_id)

    def _note_empty(self, topic: str, committed: int, meta: Meta | None) -> None:
        """Note for status that the changelog knows nothing of a lane that has processed messages."""
        if meta is None and topic == self.address.input_topic and self.limits.persist_id_cache:
            self.note = (
                f"its changelog {self.changelog}/{self.partition} is empty, and the lane has processed {topic}/{self.partition} up to "
                f"{committed}. The IDs from before are lost: a message that comes again is accepted again"
            )

    def _beyond_the_end(self, topic: str, end: int, committed: int | None, recorded: int | None) -> str:
        """Return why the lane does not open, and what to do: the topic lost its tail, or somebody set the group's offset too far."""
        place = f"{topic}/{self.partition}"
        if committed is not None and committed > end and recorded is not None and recorded <= end:
            return (
                f"{place} ends at {end}, but the offset of group {self.group_id} is {committed}; the lane has processed up to {recorded}. "
                "Somebody moved the offset. Nothing is lost: stop all workers, run 'kafka-consumer-groups.sh --reset-offsets --group "
                f"{self.group_id} --topic {topic}:{self.partition} --to-offset {recorded} --execute', and start them"
            )
        return (
            f"{place} ends at {end}, but this lane has processed up to {max(committed or 0, recorded or 0)}: it lost its tail. New "
            f"messages at those offsets would count as processed: restore the topic, or {BEGIN_ANEW}"
        )

    async def _next(self, topic: str, committed: int | None, facts: TopicFacts, meta: Meta | None) -> int:
        """First offset to process: the larger of the group's and the changelog's; none = the log's start."""
        recorded = meta.next_offsets.get(topic) if meta else None
        async with asyncio.timeout(QUESTION_LIMIT_S):
            start, end = await asyncio.gather(
                self._cluster.offsets.log_start(topic, self.partition),
                self._cluster.offsets.high_watermark(topic, self.partition),
            )
            if meta and meta.topic_ids.get(topic, facts.topic_ids[topic]) != facts.topic_ids[topic]:
                log.warning(
                    "lane %s: %s was deleted and created again: beginning at its start, %d; known IDs stay known",
                    self.name, topic, start,
                )  # fmt: skip
                return start
            known = [item for item in (committed, recorded) if item is not None]
            if not known:
                return start
            next_offset = max(known)
            if next_offset > end:
                raise LaneRefusedError(self._beyond_the_end(topic, end, committed, recorded))
            if committed is not None and committed > (recorded or 0):
                self._note_empty(topic, committed, meta)
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
