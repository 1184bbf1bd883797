from collections.abc import Sequence
from unittest.mock import patch

import pytest

import native
from tables import resize
from tables.codec import Meta, Origin, ring_key, ring_value
from tables.native_index import NativeIndex
from tables.promise import Promise, coverage
from tables.resize import collect_garbage, older_capacities
from tables.restore import Restore
from tables.ring import ResidentIndex, Ring, Verdict
from tests.support.at_once import make_ring, rebuild

META = Meta(
    capacity=10,
    head=25,
    floor=0,
    next_offsets={"orders": 1},
    partition_counts={"orders": 4},
    incarnation="00ff",
)


def _meta(capacity: int = 10, head: int = 25, floor: int = 0, *, persistent: bool = True) -> Meta:
    return META._replace(capacity=capacity, head=head, floor=floor, persistent=persistent)


def _restored(meta: Meta | None, sequences: Sequence[int] = (), capacity: int = 10) -> Restore:
    """As read from a changelog: slots of these sequences, whose IDs are their numbers and times ten times those."""
    restore = Restore(None, 0, resident=True)
    restore.meta = meta
    for sequence in sequences:
        value = ring_value(sequence, b"%d" % sequence, Origin(3, sequence, sequence * 10))
        restore.occupants[ring_key(capacity, sequence)] = value
    return restore


def _known(ring: Ring, count: int = 40) -> list[int]:
    """Sequences whose IDs the ring knows, each asked for alone."""
    return [index for index in range(count) if ring.check([b"%d" % index]).verdicts == [Verdict.DUPLICATE]]


# -- the ring at the configured capacity -----------------------------------------------------------------------------


def test_first_opening() -> None:
    """A first ring is empty, with the configured capacity and age."""
    ring = make_ring(10, _restored(None), max_age_ms=7)

    assert (ring.capacity, ring.head, ring.floor, ring.low, ring.max_age_ms) == (10, 0, 0, 0, 7)
    assert _known(ring) == []


@pytest.mark.parametrize("floor", [0, 18, 25])
def test_same_capacity(floor: int) -> None:
    """A ring of the same capacity keeps its head, floor and live IDs."""
    ring = make_ring(10, _restored(_meta(floor=floor), range(15, 25)))

    assert (ring.capacity, ring.head, ring.floor) == (10, 25, floor)
    assert _known(ring) == list(range(max(15, floor), 25))


@pytest.mark.parametrize("capacity", [0, 1, 4, 9])
def test_shrinking(capacity: int) -> None:
    """Shrinking keeps the newest N."""
    ring = make_ring(capacity, _restored(_meta(), range(15, 25)))

    assert (ring.head, ring.low, len(ring)) == (25, 25 - capacity, capacity)
    assert _known(ring) == list(range(25 - capacity, 25))


@pytest.mark.parametrize("capacity", [11, 20, 1_000])
def test_growing(capacity: int) -> None:
    """A growth loses nothing and brings nothing back: slots that were only due to be overwritten stay dead."""
    ring = make_ring(capacity, _restored(_meta(), range(5, 25), capacity=20))

    assert ring.floor == 15
    assert _known(ring) == list(range(15, 25))


@pytest.mark.parametrize(("capacity", "holds"), [(10, True), (9, False), (4, False)])
def test_shrinking_breaks_a_promise(capacity: int, holds: bool) -> None:
    """A smaller ring that lets go of younger IDs says so before it knows a new one, and they stay evicted when it grows again."""
    meta = _meta(floor=15)._replace(promise=Promise(2, 1_000, newest_ms=250))
    ring = make_ring(capacity, _restored(meta, range(15, 25)), promise=Promise(2, 1_000))

    assert ring.promise is not None
    oldest_ms = ring.low * 10
    assert coverage(ring.promise, ring.capacity, ring.head, ring.floor, oldest_ms).holds is holds
    assert _known(ring) == list(range(25 - capacity, 25))

    smaller = meta._replace(capacity=capacity, floor=ring.floor)
    grown = make_ring(30, _restored(smaller, range(15, 25)), promise=Promise(2, 1_000))
    assert _known(grown) == list(range(25 - capacity, 25))


def test_shrunk_and_grown_again() -> None:
    """An ID evicted while the ring was small stays evicted, even if its slot is still there."""
    small = make_ring(3, _restored(_meta(), range(15, 25)))

    grown = make_ring(10, _restored(_meta(capacity=3, floor=small.floor), range(15, 25)))

    assert _known(grown) == [22, 23, 24]


@pytest.mark.parametrize("capacity", [3, 10, 30])
def test_a_higher_floor_stays(capacity: int) -> None:
    """A change of size never lowers the floor, so a cleared ring stays cleared."""
    ring = make_ring(capacity, _restored(_meta(floor=24), range(15, 25)))

    assert ring.floor == 24
    assert _known(ring) == [24]


@pytest.mark.parametrize(
    ("was", "becomes"), [(False, False), (True, False), (False, True)], ids=["stays", "becomes", "was"]
)
@pytest.mark.parametrize("capacity", [5, 10, 20])
def test_in_memory_only(was: bool, becomes: bool, capacity: int) -> None:
    """A ring that is in memory only, or was, knows nothing from before, whatever slots are still there."""
    restore = _restored(_meta(persistent=was), range(15, 25))

    ring = make_ring(capacity, restore, persistent=becomes)

    assert (ring.capacity, ring.head, ring.floor, len(ring)) == (capacity, 25, 25, 0)
    assert _known(ring) == []


def test_times_come_back() -> None:
    """A maximum age gives the slots their times, and age counts across a change of size too."""
    for capacity in (4, 10, 20):
        ring = make_ring(capacity, _restored(_meta(), range(15, 25)), max_age_ms=30)

        verdicts = ring.check([b"22", b"21"], [250, 250]).verdicts
        assert verdicts == [Verdict.DUPLICATE, Verdict.ACCEPTED]


def test_times_take_no_room_without_an_age() -> None:
    """A ring without a maximum age keeps no times."""
    with patch.object(native, "core", None):
        index = make_ring(10, _restored(_meta(), range(15, 25))).index

    assert isinstance(index, ResidentIndex)
    assert len(index._times) == 0


@pytest.mark.skipif(native.core is None, reason=native.spoken)
def test_who_keeps_the_index() -> None:
    """The core keeps the index if it exists and no times are needed."""
    restored = _restored(_meta(), range(15, 25))

    assert isinstance(make_ring(10, restored).index, NativeIndex)
    assert isinstance(make_ring(10, restored, max_age_ms=1).index, ResidentIndex)
    assert isinstance(make_ring(10, _restored(None)).index, NativeIndex)
    assert isinstance(make_ring(10, _restored(None), max_age_ms=1).index, ResidentIndex)


@pytest.mark.parametrize("meta", [None, _meta()])
def test_index_that_is_given(meta: Meta | None) -> None:
    """An index that lives elsewhere is used as it is and not built."""
    index = rebuild([(20, b"x", 0)], 15, 25)

    ring = make_ring(10, _restored(meta, range(15, 25)), index)

    assert ring.index is index


# -- earlier capacities ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("meta", "capacity", "expected"),
    [
        (None, 10, []),
        (_meta(10, 25), 10, []),
        (_meta(10, 25), 20, [[10, 25, 0]]),
        (_meta(10, 25)._replace(older=[[7, 9, 3]]), 10, [[7, 9, 3]]),
        (_meta(10, 25)._replace(older=[[7, 9, 3], [5, 4, 0]]), 20, [[10, 25, 0], [7, 9, 3], [5, 4, 0]]),
        (_meta(10, 25), 0, [[10, 25, 0]]),
        (_meta(0, 25), 10, []),
        (_meta(0, 25)._replace(older=[[7, 9, 3]]), 10, [[7, 9, 3]]),
        (_meta(10, 25)._replace(older=[[20, 9, 3], [5, 4, 0]]), 20, [[10, 25, 0], [5, 4, 0]]),
    ],
    ids=[
        "first",
        "same",
        "other",
        "same again",
        "third",
        "to none",
        "from none",
        "from none again",
        "one returns",
    ],
)
def test_older_capacities(meta: Meta | None, capacity: int, expected: list[list[int]]) -> None:
    """The capacity before this one comes first, with the head at which it ended; 0 has no slots; one that returns is none."""
    assert older_capacities(capacity, meta) == expected


def test_older_is_a_copy() -> None:
    """The meta record that they come from is not changed through them."""
    meta = _meta()._replace(older=[[7, 9, 3]])

    older_capacities(20, meta)[1].append(1)

    assert meta.older == [[7, 9, 3]]


# -- removing what is dead -------------------------------------------------------------------------------------------


def _slots(capacity: int, *slots: int) -> list[bytes]:
    return [ring_key(capacity, slot) for slot in slots]


@pytest.mark.parametrize("low", [0, 24])
def test_alive_is_left(low: int) -> None:
    """No slot of an earlier capacity is removed while one of its sequences may be alive."""
    assert collect_garbage([[10, 25, 0]], low) == ([[10, 25, 0]], [])


@pytest.mark.parametrize("low", [25, 1_000])
def test_dead_is_removed(low: int) -> None:
    """All slots of a dead capacity are removed, each once, and the capacity is forgotten."""
    assert collect_garbage([[3, 25, 0]], low) == ([], _slots(3, 0, 1, 2))


def test_bounded_and_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction removes a limited number of slots, and the next one continues until none is left."""
    monkeypatch.setattr(resize, "TOMBSTONES_MAX", 4)
    older: Sequence[Sequence[int]] = [[10, 25, 0]]
    steps = []
    for _ in range(4):
        older, removed = collect_garbage(older, 25)
        steps.append((older, removed))

    assert steps == [
        ([[10, 25, 4]], _slots(10, 0, 1, 2, 3)),
        ([[10, 25, 8]], _slots(10, 4, 5, 6, 7)),
        ([], _slots(10, 8, 9)),
        ([], []),
    ]


def test_bound_is_for_all_capacities(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is a transaction's: what one capacity leaves of it the next may use."""
    monkeypatch.setattr(resize, "TOMBSTONES_MAX", 4)
    older: Sequence[Sequence[int]] = [[3, 25, 0], [2, 20, 0], [4, 10, 1]]

    older, first = collect_garbage(older, 25)
    assert (older, first) == ([[2, 20, 1], [4, 10, 1]], [*_slots(3, 0, 1, 2), *_slots(2, 0)])

    older, second = collect_garbage(older, 25)
    assert (older, second) == ([], [*_slots(2, 1), *_slots(4, 1, 2, 3)])


def test_dead_ones_behind_a_living_one() -> None:
    """A capacity that is alive still does not keep the older ones behind it."""
    assert collect_garbage([[10, 25, 0], [2, 20, 0]], 20) == ([[10, 25, 0]], _slots(2, 0, 1))
