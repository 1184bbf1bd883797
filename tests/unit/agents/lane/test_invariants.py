"""Invariants are checked where they hold: a defect of Ringfence ends in an error, and never in a wrong state."""

import pytest

from agents.lane.cursor import Cursor
from ringfence_kafka.errors import InvariantError, require


def test_what_holds_says_nothing() -> None:
    """An invariant that holds costs a comparison."""
    require(True, "never shown")


def test_what_does_not_hold_is_shown() -> None:
    """A broken invariant is reported with its numbers."""
    with pytest.raises(InvariantError, match=r"^orders 0 is done up to 6 and was up to 7$"):
        require(False, "orders", 0, "is done up to", 6, "and was up to", 7)


def test_a_position_never_goes_back() -> None:
    """A position that goes back is an error.

    Nothing would be fetched again, and the next transaction would commit the lower one.
    """
    cursor = Cursor("orders-0", "orders", 0, 7, "id", 7)
    cursor.done(9)

    with pytest.raises(InvariantError, match="done up to 8 and was up to 9"):
        cursor.done(8)

    assert cursor.next == 9
