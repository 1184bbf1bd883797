"""Computations of the product in one piece instead of slices."""

from typing import Any, TypeVar

from ringfence_kafka.concurrency.cooperative import Steps
from tables.change import TableOptions
from tables.resize import making_ring
from tables.restore import Restore
from tables.ring import Index, Ring

T = TypeVar("T")


def at_once(steps: Steps[T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def make_ring(capacity: int, restore: Restore, index: Index | None = None, **options: Any) -> Ring:
    return at_once(making_ring(TableOptions(capacity, capacity, **options), restore, index))
