"""Faults of a cluster of three brokers: leaders killed, frozen and moved, and too few copies."""

import random
import time
from collections.abc import Callable
from typing import Final

from tests.harness.nemeses.nemesis import Nemesis, OfSystem
from tests.harness.system import System
from tests.support.brokers.several import Node

DOWN_S: Final = (0.0, 4.0)
TOO_FEW_S: Final = (3.0, 12.0)
"""Seconds with one broker of three: nothing can be written, and nobody can be made leader."""


class _OfSeveral(OfSystem):
    def __init__(self, system: System, rng: random.Random) -> None:
        super().__init__(system, rng)
        self._cluster = system.several

    def _one(self) -> Node:
        inner = ("__transaction_state", "__consumer_offsets")
        topics = [workload.name for workload in self._system.workloads]
        chosen = self._rng.choice(
            [*([name] for name in inner), topics, [f"{topic}.accepted" for topic in topics]]
        )
        return self._cluster.busiest(chosen)

    def heal(self) -> None:
        """Start all brokers, and wait until all copies are in step: else the next nemesis may strike the last copy."""
        self._cluster.start()


class KilledLeader(_OfSeveral):
    """A broker is killed as by a power cut; the others take over what it led."""

    name = "kill leader"

    def strike(self) -> None:
        node = self._one()
        node.kill()
        self._cluster.wait_led(node)
        self.struck += 1
        time.sleep(self._rng.uniform(*DOWN_S))


class FrozenLeader(_OfSeveral):
    """A broker freezes until others lead, and then continues as if it were still the leader."""

    name = "freeze leader"

    def __init__(self, system: System, rng: random.Random) -> None:
        super().__init__(system, rng)
        self._node: Node | None = None

    def strike(self) -> None:
        self._node = self._one()
        self._node.pause()
        self._cluster.wait_led(self._node)
        self.struck += 1
        time.sleep(self._rng.uniform(*DOWN_S))

    def heal(self) -> None:
        if self._node is not None:
            self._node.resume()
        super().heal()


class RollingRestart(_OfSeveral):
    """Each broker in turn is stopped in order and started, as operators upgrade a cluster."""

    name = "rolling restart"

    def strike(self) -> None:
        for node in self._rng.sample(self._cluster.nodes, len(self._cluster.nodes)):
            node.stop(90)
            self._cluster.start()
        self.struck += 1


class TooFewCopies(_OfSeveral):
    """Two brokers of three are killed: the partitions of the third cannot be written, the others have no leader."""

    name = "too few copies"

    def strike(self) -> None:
        for node in self._rng.sample(self._cluster.nodes, 2):
            node.kill()
        time.sleep(self._rng.uniform(*TOO_FEW_S))
        self.struck += 1


class PowerCut(_OfSeveral):
    """All brokers are killed at once, and start again."""

    name = "kill all brokers"

    def strike(self) -> None:
        for node in self._cluster.nodes:
            node.kill()
        time.sleep(self._rng.uniform(*DOWN_S))
        self.struck += 1


class MovedLeaders(_OfSeveral):
    """Leaders move home while all brokers run, as they do after a restart unless somebody has switched that off."""

    name = "move leaders"

    def strike(self) -> None:
        node = self._one()
        node.stop(90)
        self._cluster.start()
        before = self._cluster.leaders()
        self._cluster.elect_preferred()
        self.struck += self._cluster.leaders() != before


NEMESES: Final[dict[str, Callable[[System, random.Random], Nemesis]]] = {
    "kill-leader": KilledLeader,
    "freeze-leader": FrozenLeader,
    "rolling-restart": RollingRestart,
    "too-few-copies": TooFewCopies,
    "power-cut": PowerCut,
    "move-leaders": MovedLeaders,
}
