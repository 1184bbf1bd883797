"""The order in which a lane opens. Each step needs the one before.

The membership is confirmed before and after the fence: a worker that wakes after a long pause must not take its lane back. The
fence (InitProducerId) ends the former owner's writes. Only after it the state is restored to the high watermark and ``next`` is
read, because anything read earlier may be out of date.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agents.decision.decide import Path
from agents.lane import journal
from agents.lane.assignment import Ownership, Partition
from agents.lane.cursor import Cursor, described, next_offsets
from agents.lane.errors import QUESTION_LIMIT_S, LaneRefusedError, PartitionsChangedError
from agents.lane.opening.identity import LaneIdentity
from agents.lane.opening.lane_checks import LaneChecks, TopicFacts
from agents.lane.opening.table_opening import SharedParts, TableOpening, describe_store
from agents.output.build import Emitter
from agents.output.changelog import changelog_batches, position_behind
from agents.output.native_build import NativePath
from agents.output.topic_batches import Outputs
from agents.rules.lane_rules import Limits, with_limits
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.errors import ForeignChangelogError
from ringfence_kafka.ownership.partition_state import NotOwnerError
from ringfence_kafka.process.failpoints import reach
from ringfence_kafka.producer.transactional import FENCE_LIMIT_S, TransactionalProducer
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.lane_layout import LaneLayout
from tables.change import Restored
from tables.codec import FormatError
from tables.table import LaneTable

log: Final = logging.getLogger("ringfence.lane")


@dataclass(frozen=True, slots=True)
class Opened:
    """Everything that an open lane works with, until its next failure or close."""

    producer: TransactionalProducer
    table: LaneTable
    epoch: int
    cursors: dict[Partition, Cursor]
    """Position in each input: the partitions of the input topic, and one of the forward topic."""
    path: Path
    emitter: Emitter
    native_path: NativePath
    """Native path. It is tried before ``path`` and ``emitter``."""
    layout: LaneLayout
    partition_counts: dict[str, int]
    """Partition counts of the input topic, the accepted topic, and the accepted topics of other addresses that parts may go to."""
    topic_ids: dict[str, str]
    cluster: Cluster
    outputs: Outputs
    """Facts about the output topics at the opening."""


class Opening:
    """Opens one lane, any number of times."""

    def __init__(
        self,
        shared: SharedParts,
        address: AddressSettings,
        number: int,
        *,
        doubtful: bool = False,
        denied: Callable[[], Sequence[str]] = tuple,
        table: LaneTable | None = None,
    ) -> None:
        """Prepare the opening of a lane.

        ``doubtful``: the address has a known problem, so the changelog is checked before the first fence; ``denied``: returns missing access
        rights, one line each; ``table``: table of the lane from an earlier assignment.
        """
        lane = LaneIdentity.of_lane(shared.settings, address, number)
        self.name = lane.name
        self.address = address
        self.number = number
        self.group_id = lane.app_id
        self.changelog = lane.changelog
        self.chained = lane.chained
        self.note = ""
        """For status: how many IDs were kept and forgotten after the changelog was deleted; empty if it was not deleted."""
        self._lane = lane
        self._doubtful = doubtful
        self._checks = LaneChecks(lane, shared.cluster, shared.agreement, denied)
        self._state = TableOpening(lane, shared, self._checks, self._set_note, table)
        self._shared = shared
        self._transactional_id = wire_names.transactional_id(lane.app_id, address.name, number)

    def _set_note(self, note: str) -> None:
        self.note = note

    @property
    def table(self) -> LaneTable:
        """Table of the lane. A change of limits replaces it."""
        return self._state.table

    @property
    def limits(self) -> Limits:
        """Limits in force. While live workers disagree these are the recorded limits."""
        return self._state.limits

    @property
    def keeps_limits(self) -> bool:
        """Whether the ring keeps recorded limits that differ from this worker's configuration."""
        return self._state.keeps_limits

    @property
    def rules_fault(self) -> str:
        """Difference between the lane's rules and this worker's; empty = there is none, or they are not compared yet."""
        return self._checks.rules_fault

    async def open(self, ownership: Ownership, given: Collection[Partition] | None = None) -> Opened:
        """Open the lane. ``given``: inputs of the lane that the group assigned to this worker; None = all.

        Raises:
            NotOwnerError: the group does not confirm the assignment; a new one follows.
            LaneRefusedError: a person has to act.
            Exception: a temporary failure, such as an unreachable broker, a time-out or a missing topic.
        """
        async with self._shared.places.place(self.name):
            return await self._open(ownership, given)

    async def _open(self, ownership: Ownership, given: Collection[Partition] | None) -> Opened:
        await reach("opening", self.name)
        await self._confirm(ownership)
        facts = await self._checks.facts()
        if given is not None:
            self._checks.require_all_inputs(facts, given)
        if self._doubtful:
            await self._checks.check_before_fence(facts)
        producer = TransactionalProducer(
            self._shared.settings.kafka, self._transactional_id, self.name, min(facts.outputs.bytes_max.values()), clients=self._shared.clients,
        )  # fmt: skip
        try:
            await reach("before-fence", self.name)
            await producer.fence(FENCE_LIMIT_S)
            await reach("after-fence", self.name)
            await self._confirm(ownership)
            epoch, restored = await self._state.restore(producer, facts)
            await reach("after-restore", self.name)
            self._checks.require_counts(facts, self.table.meta)
            await self._checks.require_rules(self.table.meta)
            if self.table.meta is None and (self.address.lanes or self._doubtful):
                await self._checks.require_no_other_lanes(facts)
            cursors = await self._state.starts.cursors(facts, self.table.meta)
            await self._state.starts.set_back(producer, cursors)
            await self._record_in_journal(producer, cursors, facts.topic_ids)
            await self._record_new_inputs(producer, epoch, cursors, facts)
            await self._begin(cursors, ownership)
        except BaseException as error:
            await producer.discard()
            self._doubtful = isinstance(error, LaneRefusedError | FormatError | ForeignChangelogError)
            if isinstance(error, FormatError | ForeignChangelogError):
                raise self._checks.refusal(error) from error
            raise
        self._state.starts.hold(cursors)
        self._doubtful = False
        self._say_open(restored, described(cursors, self.address.input_topic))
        return self._opened(producer, epoch, cursors, facts)

    def _opened(
        self, producer: TransactionalProducer, epoch: int, cursors: dict[Partition, Cursor], facts: TopicFacts
    ) -> Opened:
        targets, outputs = self._lane.targets, facts.outputs
        counts = self._counts(facts)
        address = with_limits(self.address, self.limits)
        partitions, forward = counts[self.address.input_topic], self._lane.forward_topic
        emitter = Emitter(address, forward, outputs, targets, chained=self.chained)
        return Opened(
            producer=producer,
            table=self.table,
            epoch=epoch,
            cursors=cursors,
            path=Path(address, self.number, partitions, forward, targets),
            emitter=emitter,
            native_path=NativePath(
                address, self.number, counts, self.changelog, outputs, emitter, producer.form()
            ),
            layout=LaneLayout.from_setting(address.lanes, partitions),
            partition_counts=counts,
            topic_ids=facts.topic_ids,
            cluster=self._shared.cluster,
            outputs=outputs,
        )

    def _counts(self, facts: TopicFacts) -> dict[str, int]:
        accepted = [target.accepted_topic for target in (self.address, *self._lane.targets)]
        return {name: facts.counts[name] for name in (self.address.input_topic, *accepted)}

    async def warm_up(self) -> Restored:
        """Restore the table to the committed state while another worker owns the lane. The later opening then reads only new records.

        The result is a prefix of the changelog, like any RocksDB state. This fences no producer and writes nothing to the cluster.
        Raises an error if the restore failed. The opening will report the cause.
        """
        async with self._shared.places.place(self.name):
            return await self._state.warm_up()

    async def resume(
        self, ownership: Ownership, opened: Opened, given: Collection[Partition] | None = None
    ) -> None:
        """Resume an open lane after a rebalance, under a new assignment.

        The lane does not check whether another worker owned it in between. Such a worker has fenced the producer, so the next
        write is refused and the decisions made before that write have no effect.

        Raises:
            NotOwnerError: the group does not confirm the assignment; a new one follows.
            PartitionsChangedError: the assigned inputs differ from the open ones.
            TopicRecreatedError: an input topic was deleted and created again.
            Exception: a temporary failure.
        """
        if given is not None and opened.cursors.keys() != set(given):
            raise PartitionsChangedError("the group gave the lane other partitions than before")
        topic_ids, _ = await asyncio.gather(self._input_ids(opened), self._confirm(ownership))
        for cursor in opened.cursors.values():
            cursor.require_topic(topic_ids)
        await self._begin(opened.cursors, ownership)

    async def _input_ids(self, opened: Opened) -> dict[str, str]:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            return await self._shared.cluster.topics.ids(sorted({topic for topic, _ in opened.cursors}))

    async def _begin(self, cursors: Mapping[Partition, Cursor], ownership: Ownership) -> None:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            await asyncio.gather(*(cursor.restart(ownership) for cursor in cursors.values()))

    def _say_open(self, restored: Restored, following: str) -> None:
        ring = self.table.ring
        covered = self.table.seconds_covered()
        store = describe_store(restored, self.table)
        log.info(
            "lane %s open: %d changelog records restored in %.2f s (%s), ring %d of %d%s, next %s",
            self.name, restored.records, restored.seconds, store, len(ring),
            ring.capacity, "" if covered is None else f" covering {covered:.0f} s", following,
        )  # fmt: skip

    async def _record_in_journal(
        self, producer: TransactionalProducer, cursors: dict[Partition, Cursor], topic_ids: Mapping[str, str]
    ) -> None:
        """Record in the journal that the ring knows less from now on, before any decision depends on the ring."""
        meta, address = self.table.meta, self.address
        size = self.limits.capacity
        event = journal.opening_event(meta, size, persistent=self.limits.persist_id_cache)
        if event is None and size != address.ring_capacity:
            # The reconciliation run must not assume the capacity in its own configuration file for this ring.
            event = journal.RingEvent.RESIZED
        if meta is None or event is None:
            return
        capacities = (meta.capacity, size)
        record = journal.outgoing(
            producer.builder(),
            self.group_id,
            event,
            address.name,
            self.number,
            capacities,
            next_offsets(cursors, address.lanes),
            topic_ids,
            address.lanes,
        )
        async with asyncio.timeout(QUESTION_LIMIT_S):
            await producer.transact([record], {}, self.group_id)

    async def _record_new_inputs(
        self,
        producer: TransactionalProducer,
        epoch: int,
        cursors: Mapping[Partition, Cursor],
        facts: TopicFacts,
    ) -> None:
        """Record inputs that were created again. A change of lanes and a recovery of the changelog use the records of all lanes."""
        table, ids = self.table, facts.topic_ids
        if table.meta is None or not any(table.meta.is_recreated(topic, ids[topic]) for topic, _ in cursors):
            return
        checked = table.check([], [])
        change = table.record(
            checked, [], next_offsets(cursors, self.address.lanes), self._counts(facts), ids
        )
        state = changelog_batches(self.changelog, self.number, table, change, producer.builder)
        async with asyncio.timeout(QUESTION_LIMIT_S):
            bases = await producer.transact(state, {}, self.group_id)
        table.apply(epoch, change, position_behind(state, bases))

    async def _confirm(self, ownership: Ownership) -> None:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            if not await ownership.confirm():
                raise NotOwnerError(
                    "the group does not confirm this worker's membership; a new assignment follows"
                )
