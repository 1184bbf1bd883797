"""A ring and messages with several IDs: transactions. One ID is enough; what is ignored adds nothing."""

from collections.abc import Sequence

import pytest

from ringfence_kafka.protocol.stored_ids import encode_id
from tables.ring import Checked, Ring, Verdict

ACCEPTED, DUPLICATE, UNCHECKED = Verdict.ACCEPTED, Verdict.DUPLICATE, Verdict.UNCHECKED


def ids(text: str) -> list[bytes]:
    """Return a message whose IDs are these letters."""
    return [encode_id(letter.encode()) for letter in text]


def run(ring: Ring, *units: str, times: Sequence[int] | None = None) -> list[Verdict]:
    return applied(ring, *units, times=times).verdicts


def applied(ring: Ring, *units: str, times: Sequence[int] | None = None) -> Checked:
    """As one batch, with all that is said of it."""
    checked = ring.check_units([ids(unit) for unit in units], times or [0] * len(units))
    ring.apply(checked)
    return checked


@pytest.mark.parametrize("together", [True, False])
def test_one_known_id_is_enough(together: bool) -> None:
    """A unit with one known ID is a duplicate, and its other IDs are not added."""
    ring = Ring(10)
    if together:
        assert run(ring, "x", "abx", "b", "xab") == [ACCEPTED, DUPLICATE, ACCEPTED, DUPLICATE]
    else:
        assert [run(ring, name) for name in ("x", "abx", "b", "xab")] == [
            [ACCEPTED],
            [DUPLICATE],
            [ACCEPTED],
            [DUPLICATE],
        ]

    assert len(ring) == 2


def test_all_are_added() -> None:
    """A resend of any of them is known, and says which it was: the first known one."""
    ring = Ring(10)
    first = applied(ring, "abc")
    second = applied(ring, "zc", "b", "yba")

    assert (first.first_sequence, first.new_ids, first.owners) == (0, ids("abc"), [0, 0, 0])
    assert second.verdicts == [DUPLICATE] * 3
    assert second.originals == [2, 1, 1]
    assert (second.new_ids, second.owners) == ([], [])


def test_twice_inside_counts_once() -> None:
    """No message is a duplicate of itself, and one ID takes one slot."""
    ring = Ring(10)
    checked = applied(ring, "aba", "c")

    assert checked.verdicts == [ACCEPTED, ACCEPTED]
    assert (checked.new_ids, checked.owners) == (ids("abc"), [0, 0, 1])


def test_judged_by_the_head_before_it() -> None:
    """A unit is judged against the ring before it: its own IDs push no known ID out meanwhile."""
    ring = Ring(3)
    run(ring, "a", "b", "c")

    assert run(ring, "xyza") == [DUPLICATE]
    assert run(ring, "xy", "a") == [ACCEPTED, ACCEPTED]
