"""The interface of all faults."""

import contextlib
import random
from collections.abc import Iterator
from typing import Protocol, TypeVar

from tests.harness.system import System


class Nemesis(Protocol):
    """A fault that can be made to happen, and undone."""

    name: str
    struck: int
    """Number of real strikes: counted after the effect was seen."""

    def strike(self) -> None:
        """Strike; return when the fault has happened."""
        ...

    def heal(self) -> None:
        """Undo the fault. May be called again, and without a strike."""
        ...


class OfSystem:
    """A nemesis that acts on a whole system. ``name``: needed if the class alone does not name it."""

    name = ""

    def __init__(self, system: System, rng: random.Random, name: str = "") -> None:
        self.name = name or self.name
        self.struck = 0
        self._system = system
        self._rng = rng

    def heal(self) -> None:
        """Do nothing: the strike undoes itself."""


AnyNemesis = TypeVar("AnyNemesis", bound=Nemesis)


@contextlib.contextmanager
def striking(nemesis: AnyNemesis) -> Iterator[AnyNemesis]:
    try:
        nemesis.strike()
        yield nemesis
    finally:
        nemesis.heal()
