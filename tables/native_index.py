"""The index in memory, kept by the core: a fifth of the memory of Python's, and no object an ID."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import native
from ringfence_kafka.concurrency.cooperative import Steps
from tables.ring import STEP, ResidentIndex

if TYPE_CHECKING:
    from native._core import Ids

_FREED_AT_ONCE: Final = 16
"""Blocks of a quarter of a megabyte."""


class NativeIndex:
    """As :class:`tables.ring.ResidentIndex`, which is the reference; for rings whose IDs have no maximum age."""

    def __init__(self, ids: "Ids") -> None:
        self.ids = ids

    @classmethod
    def rebuilding(
        cls, entries: Iterable[tuple[int, bytes, int]], low: int, head: int, capacity: int
    ) -> "Steps[NativeIndex]":
        """From (sequence, ID, timestamp) in any order; those outside ``low <= sequence < head`` are dead."""
        assert native.core is not None  # noqa: S101 - who chooses this index has looked
        index = cls(native.core.Ids(capacity, low))
        order: list[bytes | None] = [None] * (head - low)
        entries = iter(entries)
        while some := list(islice(entries, STEP)):
            for sequence, data, _ in some:
                if low <= sequence < head:
                    order[sequence - low] = data
            yield
        for begin in range(0, len(order), STEP):
            for number, known in enumerate(order[begin : begin + STEP], low + begin):
                if known is not None:
                    index.ids.note(number, [known], low)
            yield
        return index

    def lookup(self, ids: Sequence[bytes]) -> list[int | None]:
        """The latest sequence known for each ID."""
        return self.ids.lookup(ids)

    def times(self, sequences: Sequence[int]) -> list[int]:
        """Not kept."""
        raise AssertionError(f"timestamps of {len(sequences)} IDs are asked for, and not kept here")

    def add(self, first_sequence: int, ids: Sequence[bytes], times: Sequence[int], low: int) -> None:
        """Note new IDs and forget what lies below ``low``."""
        self.ids.note(first_sequence, list(ids), low)

    def emptying(self) -> Steps[None]:
        """Let go of all of it, when nobody uses it any more."""
        while self.ids.let_go(_FREED_AT_ONCE):
            yield

    def __len__(self) -> int:
        return len(self.ids)


def empty_index(low: int, capacity: int, *, aged: bool) -> ResidentIndex | NativeIndex:
    """Return the index of an empty ring; ``aged``: its IDs have a maximum age."""
    if native.core is None or aged:
        return ResidentIndex(low, capacity if aged else 0)
    return NativeIndex(native.core.Ids(capacity, low))


def rebuilding_index(
    entries: Iterable[tuple[int, bytes, int]], low: int, head: int, capacity: int, *, aged: bool
) -> Steps[ResidentIndex | NativeIndex]:
    """As ``rebuilding`` of either."""
    if native.core is None or aged:
        resident = yield from ResidentIndex.rebuilding(entries, low, head, capacity if aged else 0)
        return resident
    index = yield from NativeIndex.rebuilding(entries, low, head, capacity)
    return index
