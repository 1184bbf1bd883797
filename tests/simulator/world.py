"""A world: a cluster and a few processes in which a schedule happens. At the end everything heals, and the world must settle."""

import random
import zlib
from collections.abc import Sequence
from typing import Final

from tests.simulator.kafka.cluster import SimulatedCluster
from tests.simulator.loop import Loops
from tests.simulator.patches import DICE, JITTER
from tests.simulator.process import Process
from tests.simulator.schedules import Schedule

LOOK_S: Final = 0.02
NOTICED_S: Final = 0.002
"""Seconds until consumers notice new records."""


class World:
    """One run of a schedule."""

    processes: Sequence[Process]

    def __init__(self, plan: Schedule) -> None:
        dice = random.Random(f"run {plan.seed}")
        DICE.now, JITTER.now = dice, random.Random(f"jitter {plan.seed}")
        self.plan = plan
        self.partitions = plan.partitions
        self.eaten: list[set[int]] = [set() for _ in range(plan.partitions)]
        """By partition, the offsets that retention deleted before the group knew them as processed."""
        self.loops = Loops(dice)
        self.cluster = SimulatedCluster(self.loops, dice)
        self.cluster.implicit, self.cluster.brokers = plan.implicit, plan.brokers
        self.cluster.moved = self._moved
        self.sent = 0
        self.trace: list[str] | None = None
        self._noticing: set[str] = set()

    def watch(self) -> list[str]:
        trace: list[str] = []
        self.trace = trace
        for process in self.processes:
            process.network.trace = trace
        return trace

    def close(self) -> None:
        self.loops.bury()
        for process in (
            *self.processes,
            self.cluster.transactions,
            self.cluster.group,
            self.cluster,
            self.loops,
        ):
            vars(process).clear()

    @property
    def signature(self) -> int:
        """Equal for two runs that are the same: any difference changes later dice and their times."""
        told = (self.loops.steps, self.loops.now, self.loops.dice.random(), self.sent)
        return zlib.crc32(repr(told).encode())

    def _moved(self, topic: str) -> None:
        if not self._noticing:
            self.loops.after(NOTICED_S, self._notice)
        self._noticing.add(topic)

    def _notice(self) -> None:
        topics, self._noticing = self._noticing, set()
        for process in self.processes:
            process.notice(topics)

    def note(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.loops.now:10.4f} == {text}")

    # -- whether it has settled --------------------------------------------------------------------------------

    def settled(self) -> bool:
        """Whether the world rests. The next look comes :data:`LOOK_S` later, because each one is costly."""
        self.loops.look_at = self.loops.now + LOOK_S
        return self.rests()

    def rests(self) -> bool:
        raise NotImplementedError

    def unsettled(self) -> str:
        raise NotImplementedError

    def _open(self) -> list[str]:
        names = [value.name for value in self.cluster.transactions.known.values() if not value.at_rest]
        return [f"a transaction of {name} is open" for name in names]

    def _united(self) -> bool:
        group = self.cluster.group
        if group.rebalancing or len(group.members) != len(self.processes):
            return False
        for process in self.processes:  # noqa: SIM110 - asked often, and this is what costs least
            if process.generation != group.generation:
                return False
        return True
