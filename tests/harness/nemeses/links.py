"""Faults of the link between a worker and the broker: cut, slow, dead without a word."""

import random
import time
from typing import Final, Literal

from tests.harness.nemeses.nemesis import OfSystem
from tests.harness.system import System
from tests.support.brokers.link import TcpProxy

How = Literal["cut", "delay", "blackhole", "lose answers", "hold"]
HOWS: Final[tuple[How, ...]] = ("cut", "delay", "blackhole", "lose answers", "hold")
HOLD_S: Final = (2.0, 14.0)
"""Seconds: from a time that a retry bridges to past the session time-out."""
DELAY_S: Final = (0.05, 0.6)


def break_link(link: TcpProxy, how: How, rng: random.Random) -> None:
    match how:
        case "cut":
            link.cut()
        case "delay":
            link.delay(rng.uniform(*DELAY_S))
        case "blackhole":
            link.blackhole()
        case "lose answers":
            link.lose_answers()
        case "hold":
            link.hold()


class BrokenLink(OfSystem):
    """One worker's link breaks for a while."""

    def __init__(self, system: System, rng: random.Random, how: How) -> None:
        super().__init__(system, rng, f"link: {how}")
        self._proxy: TcpProxy | None = None
        self._how = how

    def strike(self) -> None:
        worker = self._system.some_worker(self._rng)
        self._proxy = self._system.broker.links[self._system.workers.index(worker)]
        before = self._proxy.struck
        break_link(self._proxy, self._how, self._rng)
        time.sleep(self._rng.uniform(*HOLD_S))
        self.struck += self._proxy.struck > before

    def heal(self) -> None:
        if self._proxy is not None:
            self._proxy.open()
