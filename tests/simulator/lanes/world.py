"""A world of lanes."""

import math
import zlib
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
"""Offsets that an input has at first if it will be created again: no recreated topic reaches as many, so offsets show which it is."""


class LaneWorld(World):
    """Workers with lanes of one address."""

    processes: Sequence[Worker]

    def __init__(self, plan: Schedule) -> None:
        super().__init__(plan)
        self.expired = False
        self.forgetful = False
        self.kept: list[Record] = []
        self.generations: dict[bytes, int] = {}
        """Generation of the input topic by a message's token; the first generation is left out."""
        self.recreated = 0
        self.old_ends: list[int] = []
        self.lane_count = plan.lanes or plan.partitions
        self.inputs = (ADDRESS,) if plan.lanes == 1 else (ADDRESS, FORWARD)
        """Topics that lanes read. One lane forwards nothing."""
        outputs = (ACCEPTED, DUPLICATES, QUARANTINE)
        for topic in (ADDRESS, *outputs, *(OF_OTHER if plan.envelopes else ())):
            self.cluster.create(topic, plan.partitions)
        for topic in self.inputs[1:]:
            self.cluster.create(topic, self.lane_count)
        self.cluster.create(CHANGELOG, self.lane_count, **COMPACTED)
        self.cluster.create(JOURNAL, 1)
        self.cluster.together, self.cluster.lanes = [self.inputs], plan.lanes
        self.processes = [
            Worker(
                f"p{number}",
                settings_of(
                    f"p{number}",
                    plan.capacity,
                    plan.divert,
                    envelopes=plan.envelopes,
                    lanes=plan.lanes,
                    observe=plan.observe,
                ),
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

    def home(self, key: bytes) -> int:
        return zlib.crc32(key) % self.partitions

    def lane_at_home(self, key: bytes) -> int:
        return self.home(key) % self.lane_count

    def lane_of(self, topic: str, partition: int) -> int:
        return partition % self.lane_count if topic == ADDRESS else partition

    def grow(self, partitions: int) -> None:
        self.eaten += [set() for _ in range(self.partitions, partitions)]
        self.partitions = partitions
        self.cluster.grow(ADDRESS, partitions)

    def _decided(self, partition: int) -> float:
        """Return the head of a lane, even before its markers are written; infinity once a changelog was lost."""
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

    def owners(self, number: int) -> list[Lane]:
        generation = self.cluster.group.generation
        return [
            lane
            for process in self.processes
            if process.lanes is not None
            and process.consumer is not None
            and process.consumer.generation == generation
            for lane in process.lanes.lanes
            if lane.opening.number == number and lane.state is LaneState.OPEN
        ]

    def rests(self) -> bool:
        cluster = self.cluster
        if not self._united() or not cluster.transactions.at_rest:
            return False
        for topic in self.inputs:
            for log in cluster.topics[topic].logs:
                if not log.processed_up_to(self._processed(topic, log.partition)):
                    return False
        return all(self._owned(number) for number in range(self.lane_count))

    @staticmethod
    def _next(lane: Lane, topic: str, partition: int) -> int:
        cursor = lane.cursors.get((topic, partition))
        return 0 if cursor is None else cursor.next

    def _reached(self, lane: Lane, partition: int) -> int:
        """Return the lane's next offset in the present input; 0 if it still knows the former one."""
        opened = lane._opened
        known = opened is not None and opened.topic_ids[ADDRESS] == self.cluster.topics[ADDRESS].topic_id
        return self._next(lane, ADDRESS, partition) if known else 0

    def _processed(self, topic: str, partition: int) -> int:
        """Return the offset that the group knows, or the owner's if the group's offsets have expired."""
        owners = self.owners(self.lane_of(topic, partition))
        if self.recreated and topic == ADDRESS:
            return min((self._reached(lane, partition) for lane in owners), default=0)
        committed = self.cluster.committed(topic, partition) or 0
        if not self.expired:
            return committed
        return max([committed, *(self._next(lane, topic, partition) for lane in owners)])

    def _owned(self, number: int) -> bool:
        owners = self.owners(number)
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
        return told + self._open()

    def unsettled(self) -> str:
        told = [said for topic in self.inputs for said in self._unprocessed(topic)]
        for process in self.processes:
            lanes = [] if process.lanes is None else process.lanes.lanes
            states = ", ".join(f"{lane.name} {lane.state.value} {lane.reason}".strip() for lane in lanes)
            told.append(f"{process.name}: {states or 'no lanes'}")
        return "; ".join(told)


def newest_meta(world: LaneWorld, number: int) -> Meta | None:
    metas = (
        item
        for item in reversed(world.cluster.log(CHANGELOG, number).committed())
        if item.key == codec.META_KEY
    )
    found = next(metas, None)
    return None if found is None or found.value is None else codec.decode_meta(found.value)
