"""A ring and messages with several IDs: transactions. One ID is enough; what is ignored adds nothing."""

import pytest

from ringfence_kafka.protocol.stored_ids import encode_id
from tables.ring import Checked, Ring, Verdict

ACCEPTED, DUPLICATE = Verdict.ACCEPTED, Verdict.DUPLICATE


def ids(text: str) -> list[bytes]:
    """Return a message whose IDs are these letters."""
    return [encode_id(letter.encode()) for letter in text]


def applied(ring: Ring, *units: str) -> Checked:
    """As one batch, with all that is said of it."""
    checked = ring.check_units([ids(unit) for unit in units], [0] * len(units))
    ring.apply(checked)
    return checked


@pytest.mark.parametrize("together", [True, False])
def test_one_known_id_is_enough(together: bool) -> None:
    """A unit with one known ID is a duplicate, and its other IDs are not added."""
    ring = Ring(10)
    batches = [["x", "abx", "b", "xab"]] if together else [["x"], ["abx"], ["b"], ["xab"]]
    verdicts = [verdict for batch in batches for verdict in applied(ring, *batch).verdicts]

    assert verdicts == [ACCEPTED, DUPLICATE, ACCEPTED, DUPLICATE]
    assert len(ring) == 2


def test_all_are_added() -> None:
    """A resend of any of them is known, and says which it was: the first known one."""
    ring = Ring(10)
    first = applied(ring, "abca")
    second = applied(ring, "zc", "b", "yba")

    assert (first.first_sequence, first.new_ids, first.owners) == (0, ids("abc"), [0, 0, 0])
    assert (second.verdicts, second.originals) == ([DUPLICATE] * 3, [2, 1, 1])
    assert (second.new_ids, second.owners) == ([], [])
