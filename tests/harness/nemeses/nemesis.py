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
    """A nemesis that acts on a whole system. ``name``: where the class alone does not say it."""

    name = ""

    def __init__(self, system: System, rng: random.Random, name: str = "") -> None:
        self.name = name or self.name
        self.struck = 0
        self._system = system
        self._rng = rng

    def heal(self) -> None:
        """Undo nothing: the strike itself does."""


AnyNemesis = TypeVar("AnyNemesis", bound=Nemesis)


@contextlib.contextmanager
def striking(nemesis: AnyNemesis) -> Iterator[AnyNemesis]:
    """Strike, and heal on exit, whatever happens."""
    try:
        nemesis.strike()
        yield nemesis
    finally:
        nemesis.heal()
