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


def test_none() -> None:
    """A unit without an ID always passes."""
    ring = Ring(10)

    assert run(ring, "", "a", "") == [UNCHECKED, ACCEPTED, UNCHECKED]
    assert run(ring, "") == [UNCHECKED]


def test_more_than_the_ring_holds() -> None:
    """The last N are live; all of the message is judged before any of it counts."""
    ring = Ring(3)

    assert run(ring, "abcdef") == [ACCEPTED]
    assert [run(ring, name) for name in "fed"] == [[DUPLICATE]] * 3
    assert run(ring, "a") == [ACCEPTED]


def test_judged_by_the_head_before_it() -> None:
    """A unit is judged against the ring before it: its own IDs push no known ID out meanwhile."""
    ring = Ring(3)
    run(ring, "a", "b", "c")

    assert run(ring, "xyza") == [DUPLICATE]
    assert run(ring, "xy", "a") == [ACCEPTED, ACCEPTED]


def test_ring_of_one_and_of_none() -> None:
    """A ring of size 1 knows the last ID, and one of size 0 is off."""
    one, none = Ring(1), Ring(0)

    assert run(one, "ab", "b", "a") == [ACCEPTED, DUPLICATE, ACCEPTED]
    assert run(none, "ab", "ab", "") == [UNCHECKED] * 3


def test_too_old() -> None:
    """The age of each known ID is judged by the message's own time."""
    ring = Ring(10, max_age_ms=100)
    run(ring, "a", "b", times=[0, 90])

    assert run(ring, "ac", "bd", times=[101, 190]) == [ACCEPTED, DUPLICATE]
    # Accepted again, a is young again.
    assert run(ring, "a", times=[150]) == [DUPLICATE]


@pytest.mark.parametrize("capacity", [0, 1, 3, 10])
def test_plain_messages_as_ever(capacity: int) -> None:
    """Units with one ID or none get the verdicts of the plain check."""
    letters = [None, "a", "b", "a", None, "c", "d", "a", "b", "e", "c"]
    units, plain = Ring(capacity), Ring(capacity)
    for batch in (letters, letters[::-1], letters):
        several = units.check_units([[] if item is None else ids(item) for item in batch], [0] * len(batch))
        single = plain.check([None if item is None else ids(item)[0] for item in batch], [0] * len(batch))

        assert several._replace(owners=None) == single

        units.apply(several)
        plain.apply(single)
