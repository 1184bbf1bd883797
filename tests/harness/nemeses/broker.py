"""Faults of the broker itself: killed, frozen, put back in time."""

import random
import time
from typing import Final

from tests.harness.nemeses.broker_data import OldCopy
from tests.harness.nemeses.nemesis import OfSystem
from tests.harness.system import System

BRIEF_S: Final = (3.0, 12.0)
MEANWHILE_S: Final = (2.0, 8.0)
PAST_TRANSACTION_TIMEOUT_S: Final = 65.0
"""Seconds. The broker ends a transaction that is open for 60 s."""


class KilledBroker(OfSystem):
    """The broker is killed as by a power cut, and starts again over the same folder."""

    name = "kill broker"

    def strike(self) -> None:
        self._system.broker.broker.kill()
        time.sleep(self._rng.uniform(0, 6))
        self.struck += 1

    def heal(self) -> None:
        if not self._system.broker.broker.running:
            self._system.broker.broker.start()


class FrozenBroker(OfSystem):
    """The broker stops answering, its connections open."""

    def __init__(self, system: System, rng: random.Random, *, long: bool = False) -> None:
        super().__init__(
            system, rng, "freeze broker past the transaction time-out" if long else "freeze broker"
        )
        self._long = long

    def strike(self) -> None:
        self._system.broker.broker.pause()
        time.sleep(PAST_TRANSACTION_TIMEOUT_S if self._long else self._rng.uniform(*BRIEF_S))
        self.struck += 1

    def heal(self) -> None:
        if self._system.broker.broker.running:
            self._system.broker.broker.resume()


class BrokerWentBack(OfSystem):
    """All of the broker's logs lose the records of the last seconds; the workers know more than it, and producers send them again."""

    name = "broker goes back"

    def __init__(self, system: System, rng: random.Random) -> None:
        super().__init__(system, rng)
        self._copy = OldCopy(system.broker.broker, system.folder / "copy")

    def strike(self) -> None:
        marks = [producer.mark() for producer in self._system.producers]
        self._copy.take()
        time.sleep(self._rng.uniform(*MEANWHILE_S))
        for producer in self._system.producers:
            producer.kill()
        self._copy.strike()
        for producer, mark in zip(self._system.producers, marks, strict=True):
            producer.doubt(mark)
            producer.start()
        self.struck += self._copy.struck

    def heal(self) -> None:
        self._copy.heal()
        for producer in self._system.producers:
            if not producer.running:
                producer.start()
