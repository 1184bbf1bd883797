"""Index in memory, kept by the native core: a fifth of the memory of Python's, and no object for each ID."""

from array import array
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import native
from ringfence_kafka.concurrency.cooperative import Steps
from tables.change import TableOptions
from tables.ring import STEP, Checked, ResidentIndex

if TYPE_CHECKING:
    from native._core import Ids

_FREED_AT_ONCE: Final = 16
"""Number of blocks of a quarter of a megabyte."""


class NativeIndex:
    """Does the same as :class:`tables.ring.ResidentIndex`, the reference, for rings whose IDs have no maximum age."""

    def __init__(self, ids: "Ids") -> None:
        self.ids = ids

    @classmethod
    def rebuilding(
        cls,
        entries: Iterable[tuple[int, bytes, int, int]],
        low: int,
        head: int,
        capacity: int,
        *,
        timed: bool,
    ) -> "Steps[NativeIndex]":
        """Rebuild from (sequence, ID, timestamp, digest) in any order. Entries outside ``low <= sequence < head`` are dead."""
        assert native.core is not None  # noqa: S101 - the caller has checked
        index = cls(native.core.Ids(capacity, low, timed))
        order: list[tuple[bytes, int, int] | None] = [None] * (head - low)
        entries = iter(entries)
        while some := list(islice(entries, STEP)):
            for sequence, data, time, digest in some:
                if low <= sequence < head:
                    order[sequence - low] = data, time, digest
            yield
        for begin in range(0, len(order), STEP):
            for number, known in enumerate(order[begin : begin + STEP], low + begin):
                if known is not None:
                    index.ids.note(number, [known[0]], _packed([known[2]]), low, [known[1]])
            yield
        return index

    def lookup(self, ids: Sequence[bytes]) -> list[int | None]:
        """Return the latest known sequence of each ID."""
        return self.ids.lookup(ids)

    def time(self, id_: bytes, sequence: int) -> int:
        """Return the record timestamp of a known ID, in milliseconds, for rings with a promise."""
        return self.ids.time(id_)

    def leaving(self, low: int, gone: int, until: int, before: int) -> tuple[int, int]:
        """Do the same as :func:`tables.promise.leaving`, for rings with a promise."""
        return self.ids.leaving(low, gone, until, before)

    def add(self, checked: Checked, low: int) -> None:
        """Add new IDs, and delete sequences below ``low``. The core's own digests are packed already."""
        first, ids, digests = checked.first_sequence, checked.new_ids, checked.new_digests
        packed = digests if isinstance(digests, bytes) else _packed(digests or [0] * len(ids))
        if self.ids.timed:
            self.ids.note(first, ids, packed, low, checked.new_times)
        else:
            self.ids.note(first, ids, packed, low)

    def emptying(self) -> Steps[None]:
        """Free the memory in steps after the last use."""
        while self.ids.let_go(_FREED_AT_ONCE):
            yield

    def __len__(self) -> int:
        return len(self.ids)


def _packed(digests: Sequence[int]) -> bytes:
    return array("Q", digests).tobytes()


def rebuilding_index(
    entries: Iterable[tuple[int, bytes, int, int]], low: int, head: int, options: TableOptions
) -> Steps[ResidentIndex | NativeIndex]:
    """Rebuild an index with the class that suits the ring."""
    timed = options.promise is not None
    if native.core is None or options.max_age_ms:
        times = options.capacity if options.max_age_ms or timed else 0
        return (yield from ResidentIndex.rebuilding(entries, low, head, times))
    return (yield from NativeIndex.rebuilding(entries, low, head, options.capacity, timed=timed))
