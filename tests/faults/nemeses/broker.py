"""What befalls the broker itself: killed, frozen."""

import random
import time
from typing import Final

from tests.faults.system import System

BRIEF_S: Final = (3.0, 12.0)
PAST_TRANSACTION_TIMEOUT_S: Final = 65.0
"""The broker ends a transaction that is open for 60 s."""


class KilledBroker:
    """The broker is killed as by a power cut, and starts again over the same folder."""

    def __init__(self, system: System, rng: random.Random) -> None:
        self.name = "kill broker"
        self.struck = 0
        self._system = system
        self._rng = rng

    def strike(self) -> None:
        """Kill it; leave it down for a while."""
        self._system.broker.broker.kill()
        time.sleep(self._rng.uniform(0, 6))
        self.struck += 1

    def heal(self) -> None:
        """Start it."""
        if not self._system.broker.broker.running:
            self._system.broker.broker.start()


class FrozenBroker:
    """The broker stops answering, its connections open."""

    def __init__(self, system: System, rng: random.Random, *, long: bool = False) -> None:
        """``long``: until the transactions that are open have timed out."""
        self.name = "freeze broker past the transaction time-out" if long else "freeze broker"
        self.struck = 0
        self._system = system
        self._rng = rng
        self._long = long

    def strike(self) -> None:
        """Freeze it for a while: that is the fault."""
        self._system.broker.broker.pause()
        time.sleep(PAST_TRANSACTION_TIMEOUT_S if self._long else self._rng.uniform(*BRIEF_S))
        self.struck += 1

    def heal(self) -> None:
        """Let it go on."""
        if self._system.broker.broker.running:
            self._system.broker.broker.resume()
