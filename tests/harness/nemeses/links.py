"""What befalls the link between a worker and the broker: cut, slow, dead without a word."""

import random
import time
from typing import Final, Literal

from app.embedded.link import TcpProxy
from tests.harness.nemeses.nemesis import OfSystem
from tests.harness.system import System

How = Literal["cut", "delay", "blackhole", "lose answers", "hold"]
HOLD_S: Final = (2.0, 14.0)
"""From what a retry bridges to past the session time-out."""
DELAY_S: Final = (0.05, 0.6)


class BrokenLink(OfSystem):
    """One worker's link breaks for a while."""

    def __init__(self, system: System, rng: random.Random, how: How) -> None:
        super().__init__(f"link: {how}", system, rng)
        self._proxy: TcpProxy | None = None
        self._how = how

    def strike(self) -> None:
        worker = self._system.some_worker(self._rng)
        self._proxy = self._system.broker.links[self._system.workers.index(worker)]
        before = self._proxy.struck
        match self._how:
            case "cut":
                self._proxy.cut()
            case "delay":
                self._proxy.delay(self._rng.uniform(*DELAY_S))
            case "blackhole":
                self._proxy.blackhole()
            case "lose answers":
                self._proxy.lose_answers()
            case "hold":
                self._proxy.hold()
        time.sleep(self._rng.uniform(*HOLD_S))
        self.struck += self._proxy.struck > before

    def heal(self) -> None:
        if self._proxy is not None:
            self._proxy.open()
