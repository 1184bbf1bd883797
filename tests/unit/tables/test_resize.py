from collections.abc import Sequence

import pytest

from tables import resize
from tables.codec import Meta, Origin, ring_key, ring_value
from tables.resize import collect_garbage
from tables.restore import Restore
from tables.ring import Ring, Verdict
from tests.support.at_once import make_ring


def _opened(capacity: int, before: int, floor: int = 0) -> Ring:
    """Open a ring of this capacity, where one of ``before`` had the head 25 and ten slots are there still."""
    restore = Restore(None, 0, resident=True)
    restore.meta = Meta(before, 25, floor, {"orders": 1}, {"orders": 4}, "00ff")
    for sequence in range(15, 25):
        value = ring_value(sequence, b"%d" % sequence, Origin(3, sequence, 0))
        restore.occupants[ring_key(10, sequence)] = value
    return make_ring(capacity, restore)


def test_shrunk_and_grown_again() -> None:
    """An ID evicted while the ring was small stays evicted, even if its slot is still there."""
    small = _opened(3, before=10)
    grown = _opened(10, before=3, floor=small.floor)

    known = [n for n in range(40) if grown.check([b"%d" % n]).verdicts == [Verdict.DUPLICATE]]
    assert known == [22, 23, 24]


def _slots(capacity: int, *slots: int) -> list[bytes]:
    return [ring_key(capacity, slot) for slot in slots]


def test_dead_capacities_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction removes a limited number of dead slots, of all dead capacities; one that is alive keeps its own."""
    monkeypatch.setattr(resize, "TOMBSTONES_MAX", 4)
    alive = [10, 26, 0]
    older: Sequence[Sequence[int]] = [alive, [3, 25, 0], [2, 20, 0], [4, 10, 1]]

    older, first = collect_garbage(older, 25)
    assert (older, first) == ([alive, [2, 20, 1], [4, 10, 1]], [*_slots(3, 0, 1, 2), *_slots(2, 0)])

    older, second = collect_garbage(older, 25)
    assert (older, second) == ([alive], [*_slots(2, 1), *_slots(4, 1, 2, 3)])
