"""A world of lanes."""

import math
from collections.abc import Sequence
from typing import Final

from agents.lane.lane import Lane, LaneState
from tables import codec
from tables.codec import Meta
from tests.harness.history import Record
from tests.simulator.names import (
    ACCEPTED,
    ADDRESS,
    CHANGELOG,
    COMPACTED,
    DUPLICATES,
    FORWARD,
    JOURNAL,
    OF_OTHER,
    QUARANTINE,
    settings_of,
)
from tests.simulator.process import Worker
from tests.simulator.schedules import Kind, Schedule
from tests.simulator.world import World

BEGINNING: Final = 60
"""Offsets that an input begins with which will be created again: no topic comes to have as many after that, so that its offsets tell
(a topic that was filled beyond the old position while nobody looked is not told from the old one: docs/reliability.md)."""


class LaneWorld(World):
    """Workers with lanes of one address."""

    processes: Sequence[Worker]

    def __init__(self, plan: Schedule) -> None:
        super().__init__(plan)
        self.expired = False
        """The group's offsets have, once."""
        self.forgetful = False
        """The changelogs were lost, once."""
        self.kept: list[Record] = []
        """Inputs that retention has deleted since."""
        self.eaten: list[set[int]] = [set() for _ in range(plan.partitions)]
        """By partition, the offsets of which retention deleted before the group knew them as processed."""
        self.generations: dict[bytes, int] = {}
        """Token of a message → in which of the topics of the input's name it was, where that was not the first."""
        self.recreated = 0
        """How often the input was created again."""
        self.old_ends: list[int] = []
        """By partition, where the input ended that is gone."""
        for topic in (
            ADDRESS,
            ACCEPTED,
            DUPLICATES,
            QUARANTINE,
            FORWARD,
            *(OF_OTHER if plan.envelopes else ()),
        ):
            self.cluster.create(topic, plan.partitions)
        self.cluster.create(CHANGELOG, plan.partitions, **COMPACTED)
        self.cluster.create(JOURNAL, 1)
        self.cluster.together = [(ADDRESS, FORWARD)]
        self.processes = [
            Worker(
                f"p{number}",
                settings_of(f"p{number}", plan.capacity, plan.divert, envelopes=plan.envelopes),
                self.cluster,
                self.loops,
                self.loops.dice,
            )
            for number in range(plan.processes)
        ]
        for process in self.processes:
            process.rights.decided = self._decided
            process.watches = not plan.small
        if any(happening.kind in {Kind.RECREATED, Kind.REPLACED} for happening in plan.happenings):
            for number in range(plan.partitions):
                aborted = [(0, None, None, ())] * BEGINNING
                self.cluster.produce_in_transaction(ADDRESS, number, aborted, 0.0, commit=False)

    def _decided(self, partition: int) -> float:
        """The head of a lane, also where markers are still to be written. Any, once a changelog was lost."""
        transactions = self.cluster.transactions
        for record in () if self.forgetful else reversed(self.cluster.log(CHANGELOG, partition).records):
            if (
                record.key == codec.META_KEY
                and record.value
                and record.part is not None
                and transactions.committed(record.part)
            ):
                return codec.decode_meta(record.value).head
        return math.inf if self.forgetful else 0

    # -- whether it has settled --------------------------------------------------------------------------------

    def owners(self, partition: int) -> list[Lane]:
        """Lanes of this number that are open, of members of the present generation."""
        generation = self.cluster.group.generation
        return [
            lane
            for process in self.processes
            if process.lanes is not None
            and process.consumer is not None
            and process.consumer.generation == generation
            for lane in process.lanes.lanes
            if lane.opening.number == partition and lane.state is LaneState.OPEN
        ]

    def rests(self) -> bool:
        """All is processed and committed, by one owner of each lane, and nothing is under way."""
        cluster = self.cluster
        if not self._united() or not cluster.transactions.at_rest:
            return False
        for topic in (ADDRESS, FORWARD):
            for log in cluster.topics[topic].logs:
                if not log.processed_up_to(self._processed(topic, log.partition)):
                    return False
        return all(self._owned(number) for number in range(self.plan.partitions))

    def _reached(self, lane: Lane) -> int:
        """How far it is in the input that there is now."""
        opened = lane._opened
        known = opened is not None and opened.topic_ids[ADDRESS] == self.cluster.topics[ADDRESS].topic_id
        return lane.next if known else 0

    def _processed(self, topic: str, partition: int) -> int:
        """As the group knows it, or where its offsets have expired since, as the owner does."""
        if self.recreated and topic == ADDRESS:
            return min((self._reached(lane) for lane in self.owners(partition)), default=0)
        committed = self.cluster.committed(topic, partition) or 0
        if not self.expired:
            return committed
        return max(
            [
                committed,
                *(lane.cursors[topic, partition].next for lane in self.owners(partition) if lane.cursors),
            ]
        )

    def _owned(self, partition: int) -> bool:
        owners = self.owners(partition)
        return len(owners) == 1 and not owners[0]._busy

    def _unprocessed(self, topic: str) -> list[str]:
        told = []
        for log in self.cluster.topics[topic].logs:
            if log.stable < log.end:
                told.append(f"{topic}/{log.partition} is stable up to {log.stable} of {log.end}")
            last = next((item.offset for item in reversed(log.committed())), None)
            done = self._processed(topic, log.partition)
            if last is not None and done <= last:
                told.append(f"{topic}/{log.partition} is committed up to {done}, {last} is there")
        names = [value.name for value in self.cluster.transactions.known.values() if not value.at_rest]
        told += [f"a transaction of {name} is open" for name in names]
        return told

    def unsettled(self) -> str:
        told = [*self._unprocessed(ADDRESS), *self._unprocessed(FORWARD)]
        for process in self.processes:
            lanes = [] if process.lanes is None else process.lanes.lanes
            states = ", ".join(f"{lane.name} {lane.state.value} {lane.reason}".strip() for lane in lanes)
            told.append(f"{process.name}: {states or 'no lanes'}")
        return "; ".join(told)


def newest_meta(world: LaneWorld, partition: int) -> Meta | None:
    """What the changelog of a lane says last."""
    metas = (
        item
        for item in reversed(world.cluster.log(CHANGELOG, partition).committed())
        if item.key == codec.META_KEY
    )
    found = next(metas, None)
    return None if found is None or found.value is None else codec.decode_meta(found.value)
