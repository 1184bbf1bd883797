"""What all faults have in common."""

import contextlib
from collections.abc import Iterator
from typing import Protocol, TypeVar


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


AnyNemesis = TypeVar("AnyNemesis", bound=Nemesis)


@contextlib.contextmanager
def striking(nemesis: AnyNemesis) -> Iterator[AnyNemesis]:
    """Strike, and heal on exit, whatever happens."""
    try:
        nemesis.strike()
        yield nemesis
    finally:
        nemesis.heal()
