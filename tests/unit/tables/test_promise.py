"""The promise of id_min_age: what a ring keeps beyond its size, what it lets go of, and when it is broken."""

import pytest

from tables.change import TableOptions
from tables.native_index import rebuilding_index
from tables.promise import Coverage, Promise, coverage
from tables.ring import Ring, Verdict
from tests.support.at_once import at_once

AGE_MS = 1_000


def _ring(size: int, most: int) -> Ring:
    """Return a ring as a worker has it: with the core where there is one."""
    index = at_once(rebuilding_index((), 0, 0, TableOptions(most, most, promise=Promise(1, 1))))
    return Ring(most, index=index, promise=Promise(size, AGE_MS))


def _accept(ring: Ring, first: int, count: int, time: int) -> None:
    for number in range(first, first + count):
        checked = ring.check([b"%d" % number], [time])
        assert checked.verdicts == [Verdict.ACCEPTED]
        ring.apply(checked)


def _verdict(ring: Ring, number: int, time: int) -> Verdict:
    return ring.check([b"%d" % number], [time]).verdicts[0]


def test_a_young_id_outlives_the_size() -> None:
    """An ID counts beyond id_cache_size exactly as long as the promise says, and no longer."""
    ring = _ring(2, 10)
    _accept(ring, 0, 5, 0)

    assert [_verdict(ring, number, AGE_MS) for number in range(5)] == [Verdict.DUPLICATE] * 5
    after = [_verdict(ring, number, AGE_MS + 1) for number in range(5)]
    assert after == [Verdict.ACCEPTED] * 3 + [Verdict.DUPLICATE] * 2
    assert ring.promise == Promise(2, AGE_MS, 0, 0)


def test_a_full_ring_breaks_the_promise() -> None:
    """Each younger ID that leaves through id_cache_size_max is counted, one that is old enough is not."""
    ring = _ring(2, 4)
    _accept(ring, 0, 4, 0)
    assert ring.promise == Promise(2, AGE_MS, 0, 0)
    _accept(ring, 4, 2, AGE_MS)
    assert ring.promise == Promise(2, AGE_MS, AGE_MS, 2)
    assert (ring.floor, ring.low, len(ring)) == (0, 2, 4)
    assert _verdict(ring, 1, AGE_MS) is Verdict.ACCEPTED
    _accept(ring, 6, 1, AGE_MS + 1)
    assert ring.promise == Promise(2, AGE_MS, AGE_MS + 1, 2)
    assert (ring.floor, len(ring)) == (4, 3)


def test_few_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a silence, thousands of aged IDs leave over several transactions: no other lane waits for them."""
    monkeypatch.setattr("tables.ring.AGED_AT_ONCE", 3)
    ring = _ring(1, 20)
    _accept(ring, 0, 12, 0)
    floors = []
    for number in range(12, 16):
        _accept(ring, number, 1, 10 * AGE_MS)
        floors.append(ring.floor)

    assert floors == [4, 8, 12, 12]


@pytest.mark.parametrize(
    ("head", "floor", "oldest", "expected"),
    [
        (5, 0, 0, (30_000, 0)),  # nothing has left yet
        (14, 4, 0, (30_000, 0)),  # what left was too old
        (14, 3, 0, (30_000, 21)),  # 10 IDs in 30 s: 20 and a little more in 60
        (14, 3, 29_000, (1_000, 610)),
        (14, 3, 30_000, (0, 610)),  # a burst: as if it had taken a second
        (0, 0, None, (0, 0)),
    ],
)
def test_whether_it_holds(head: int, floor: int, oldest: int | None, expected: tuple[int, int]) -> None:
    """A ring whose floor is below its oldest ID let go of a younger one; the rate says which size would be enough."""
    found = coverage(Promise(2, 60_000, 30_000, 7), 10, head, floor, oldest)

    assert (found.covered_ms, found.enough) == expected
    assert found.holds == (not expected[1])


def test_a_report() -> None:
    """Pages and documents have the promise in seconds and IDs."""
    assert Coverage(Promise(2, 1_500, 9, 3), 4, 50).report() == {
        "id_min_age": 1.5, "id_cache_size": 2, "holds": False, "coverage_broken": 3, "enough": 50,
    }  # fmt: skip
    assert Coverage(Promise(2, 1_500), 4, 0).report()["enough"] is None
