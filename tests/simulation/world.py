"""A world: a cluster and a few processes, to which the happenings of a schedule come. At the end everything heals, and it must settle."""

import random
import zlib
from typing import Final

from agents.lane import Lane, LaneState
from tests.faults.history import Record
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.loop import Loops
from tests.simulation.names import (
    ACCEPTED,
    ADDRESS,
    CHANGELOG,
    COMPACTED,
    DUPLICATES,
    FORWARD,
    JOURNAL,
    QUARANTINE,
    settings_of,
)
from tests.simulation.patches import DICE
from tests.simulation.process import Process
from tests.simulation.schedules import Kind, Schedule

BEGINNING: Final = 60
"""Offsets that an input begins with which will be created again: no topic comes to have as many after that, so that its offsets tell
(a topic that was filled beyond the old position while nobody looked is not told from the old one: docs/reliability.md)."""
LOOK_S: Final = 0.02
"""Between two looks at whether it has settled."""
NOTICED_S: Final = 0.002
"""How soon consumers hear of what is new."""


class World:
    """One run of a schedule."""

    def __init__(self, plan: Schedule) -> None:
        dice = random.Random(f"run {plan.seed}")
        DICE.now = dice
        self.plan = plan
        self.loops = Loops(dice)
        self.cluster = SimulatedCluster(self.loops, dice)
        self.sent = 0
        self.expired = False
        """The group's offsets have, once."""
        self.forgetful = False
        """The changelogs were lost, once."""
        self.kept: list[Record] = []
        """Inputs that retention has deleted since."""
        self.generations: dict[bytes, int] = {}
        """Token of a message → in which of the topics of the input's name it was, where that was not the first."""
        self.recreated = 0
        """How often the input was created again."""
        self.trace: list[str] | None = None
        for topic in (ADDRESS, ACCEPTED, DUPLICATES, QUARANTINE, FORWARD):
            self.cluster.create(topic, plan.partitions)
        self.cluster.create(CHANGELOG, plan.partitions, **COMPACTED)
        self.cluster.create(JOURNAL, 1)
        self.cluster.together = [(ADDRESS, FORWARD)]
        self.cluster.moved = self._moved
        self.processes = [
            Process(
                f"p{number}",
                settings_of(f"p{number}", plan.capacity, plan.divert),
                self.cluster,
                self.loops,
                dice,
            )
            for number in range(plan.processes)
        ]
        if any(each.kind is Kind.RECREATED for each in plan.happenings):
            for number in range(plan.partitions):
                aborted = [(0, None, None, ())] * BEGINNING
                self.cluster.produce_in_transaction(ADDRESS, number, aborted, 0.0, commit=False)
        self._noticing = False
        self.look_again_at = 0.0

    def watch(self) -> list[str]:
        """Have everything written down, for who reads it."""
        trace: list[str] = []
        self.trace = trace
        for each in self.processes:
            each.network.trace = trace
        return trace

    def close(self) -> None:
        """Unwind all that ran in it, and take it apart: what is left is in no cycle with anything."""
        self.loops.bury()
        for each in (
            *self.processes,
            self.cluster.transactions,
            self.cluster.group,
            self.cluster,
            self.loops,
        ):
            vars(each).clear()

    @property
    def signature(self) -> int:
        """Two runs with the same are the same: any difference changes what is diced after it, and when it happens."""
        told = (self.loops.steps, self.loops.now, self.loops.dice.random(), self.sent)
        return zlib.crc32(repr(told).encode())

    def _moved(self) -> None:
        if not self._noticing:
            self._noticing = True
            self.loops.after(NOTICED_S, self._notice)

    def _notice(self) -> None:
        self._noticing = False
        for each in self.processes:
            each.notice()

    def note(self, text: str) -> None:
        """For who reads the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.loops.now:10.4f} == {text}")

    # -- whether it has settled --------------------------------------------------------------------------------

    def owners(self, partition: int) -> list[Lane]:
        """Lanes of this number that are open, of members of the present generation."""
        generation = self.cluster.group.generation
        return [
            lane
            for each in self.processes
            if each.lanes is not None and each.consumer is not None and each.consumer.generation == generation
            for lane in each.lanes.lanes
            if lane.opening.partition == partition and lane.state is LaneState.OPEN
        ]

    def settled(self) -> bool:
        """All is processed and committed, by one owner of each lane, and nothing is under way."""
        cluster, now = self.cluster, self.loops.now
        if now < self.look_again_at:
            return False
        self.look_again_at = now + LOOK_S
        return (
            self._united()
            and all(each.at_rest for each in cluster.transactions.known.values())
            and all(
                log.processed_up_to(self._processed(topic, log.partition))
                for topic in (ADDRESS, FORWARD)
                for log in cluster.topics[topic].logs
            )
            and all(self._owned(number) for number in range(self.plan.partitions))
        )

    def _reached(self, lane: Lane) -> int:
        """How far it is in the input that there is now."""
        opened = lane._opened
        known = opened is not None and opened.topic_ids[ADDRESS] == self.cluster.topics[ADDRESS].topic_id
        return lane.next if known else 0

    def _united(self) -> bool:
        """All processes are in the present generation of the group, and nobody else is."""
        group = self.cluster.group
        return (
            not group.rebalancing
            and len(group.members) == len(self.processes)
            and all(
                each.consumer is not None and each.consumer.generation == group.generation
                for each in self.processes
            )
        )

    def _processed(self, topic: str, partition: int) -> int:
        """As the group knows it, or where its offsets have expired since, as the owner does."""
        if self.recreated and topic == ADDRESS:
            return min((self._reached(lane) for lane in self.owners(partition)), default=0)
        known = [
            lane.cursors[topic].next
            for lane in self.owners(partition)
            if self.expired and topic in lane.cursors
        ]
        return max([self.cluster.committed(topic, partition) or 0, *known])

    def _owned(self, partition: int) -> bool:
        owners = self.owners(partition)
        return len(owners) == 1 and not owners[0]._busy

    def _unprocessed(self, topic: str) -> list[str]:
        told = []
        for log in self.cluster.topics[topic].logs:
            if log.stable < log.end:
                told.append(f"{topic}/{log.partition} is stable up to {log.stable} of {log.end}")
            last = next((each.offset for each in reversed(log.committed())), None)
            done = self._processed(topic, log.partition)
            if last is not None and done <= last:
                told.append(f"{topic}/{log.partition} is committed up to {done}, {last} is there")
        names = [each.name for each in self.cluster.transactions.known.values() if not each.at_rest]
        told += [f"a transaction of {each} is open" for each in names]
        return told

    def unsettled(self) -> str:
        """What is missing."""
        told = [*self._unprocessed(ADDRESS), *self._unprocessed(FORWARD)]
        for each in self.processes:
            lanes = [] if each.lanes is None else each.lanes.lanes
            states = ", ".join(f"{lane.name} {lane.state.value} {lane.reason}".strip() for lane in lanes)
            told.append(f"{each.name}: {states or 'no lanes'}")
        return "; ".join(told)
