"""Computations of the product in one piece instead of slices."""

from collections.abc import Iterable
from typing import Any, TypeVar

from ringfence_kafka.concurrency.cooperative import Steps
from tables.resize import making_ring
from tables.ring import ResidentIndex, Ring

T = TypeVar("T")


def at_once(steps: Steps[T]) -> T:
    """Return the result of a computation that may be interrupted, without an interruption."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def rebuild(entries: Iterable[tuple[int, bytes, int]], *arguments: Any, **options: Any) -> ResidentIndex:
    """Rebuild as :meth:`tables.ring.ResidentIndex.rebuilding` does, from entries without digests."""
    without = ((*entry, 0) for entry in entries)
    return at_once(ResidentIndex.rebuilding(without, *arguments, **options))


def make_ring(*arguments: Any, **options: Any) -> Ring:
    return at_once(making_ring(*arguments, **options))
