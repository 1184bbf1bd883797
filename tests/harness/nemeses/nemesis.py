"""What all faults have in common."""

import contextlib
import random
from collections.abc import Iterator
from typing import Protocol, TypeVar

from tests.harness.system import System


class Nemesis(Protocol):
    """A fault that can be made to happen, and undone."""

    name: str
    struck: int
    """How often it really struck: counted after the effect was seen."""

    def strike(self) -> None:
        """Make it happen; returns when it has."""
        ...

    def heal(self) -> None:
        """Undo it. May be called again, and without a strike."""
        ...


class OfSystem:
    """What nemeses that act on a whole system begin with."""

    def __init__(self, name: str, system: System, rng: random.Random) -> None:
        self.name = name
        self.struck = 0
        self._system = system
        self._rng = rng


AnyNemesis = TypeVar("AnyNemesis", bound=Nemesis)


@contextlib.contextmanager
def striking(nemesis: AnyNemesis) -> Iterator[AnyNemesis]:
    """Strike, and heal on exit, whatever happens."""
    try:
        nemesis.strike()
        yield nemesis
    finally:
        nemesis.heal()
