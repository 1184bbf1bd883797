"""Checker of the fault tests on order, memory and gaps, with histories that are nearly wrong."""

from dataclasses import replace

import pytest

from tests.harness.checker.check import Anomaly
from tests.harness.history import Place, Record
from tests.support.exact_history import EXACT, FIRST, INPUTS, RESEND, SECOND, THIRD
from tests.support.histories import A, B, C, D, accept, arrive, found, only, quarantine, story


def test_swapped() -> None:
    """Two records of one group in the wrong order are one finding, with their place."""
    finding = only(replace(EXACT, accepted=accept(FIRST, THIRD, SECOND)))

    assert finding.anomaly is Anomaly.REORDERED
    assert finding.places == (SECOND.place, Place("orders.accepted", 0, 4), THIRD.place)


@pytest.mark.parametrize(("capacity", "expected"), [(2, "OVERRUN"), (3, "FORGOTTEN"), (4, "FORGOTTEN")])
def test_forgotten_or_overrun(capacity: int, expected: str) -> None:
    """A ring of three still holds the first ID after two others, and a ring of two does not."""
    finding = only(replace(EXACT, capacity=capacity, accepted=accept(*INPUTS)))

    assert finding.anomaly.value == expected
    assert finding.places == (RESEND.place, FIRST.place)
    assert f"with 2 IDs between them; the ring promises {capacity}" in finding.text


AGAIN = arrive(1, A)
FORWARDED = [arrive(number, b"f%d-" % number, b"h", partition=1) for number in range(3)]
COPY = arrive(0, A, None, partition=1)
ONE, TWO, LATE, OTHER = arrive(1, B, b"h"), arrive(2, C, b"i"), arrive(3, A), arrive(0, D, b"j", partition=1)
BETWEEN: dict[str, tuple[list[Record], list[Record], int]] = {
    "forwarded records may have come between": (
        [FIRST, AGAIN, *FORWARDED], [*accept(FIRST, AGAIN), *accept(*FORWARDED, partition=1)], 4,
    ),
    "the output shows that they came after": ([FIRST, AGAIN, *FORWARDED], accept(FIRST, AGAIN, *FORWARDED), 1),
    "the output shows that two came between": (
        [FIRST, AGAIN, *FORWARDED], accept(FIRST, *FORWARDED[:2], AGAIN, FORWARDED[2]), 3,
    ),
    # If lane and output disagree about the order, that of the input alone counts.
    "an output out of order is no witness": (
        [FIRST, ONE, TWO, LATE, OTHER], accept(FIRST, LATE, ONE, TWO, OTHER), 4,
    ),
    # Nobody saw their order: the larger distance counts.
    "an original from another partition": (
        [FIRST, SECOND, THIRD, COPY], [*accept(FIRST, SECOND, THIRD), *accept(COPY, partition=1)], 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BETWEEN)
def test_how_many_came_between(name: str) -> None:
    """A ring of this size still had to know the first one, and a smaller ring had not."""
    inputs, accepted, enough = BETWEEN[name]
    smaller = {"OVERRUN": 1} if enough > 1 else {}

    assert found(story(inputs, accepted, capacity=enough)) == {"FORGOTTEN": 1}
    assert found(story(inputs, accepted, capacity=enough - 1)) == smaller


def test_cross_lane() -> None:
    """An ID accepted in two lanes, because the resend had another group, is CROSS-LANE."""
    here, there = arrive(0, A, b"g0"), arrive(0, A, b"g1", partition=1)
    finding = only(story([here, there], [*accept(here), *accept(there, partition=1)]))

    assert (finding.anomaly, finding.places) == (Anomaly.CROSS_LANE, (here.place, there.place))


def test_gap() -> None:
    """A record that retention deleted is unknown: neither a phantom nor a loss, but never clean."""
    finding = only(replace(EXACT, inputs=INPUTS[1:], log_starts={0: 1, 1: 0}))

    assert finding.anomaly is Anomaly.GAP
    assert finding.places == (Place("orders", 0, 1),)
    assert "1 outputs came from there" in finding.text
    assert "attempts" not in finding.text


NEVER = accept(arrive(9, D, b"h"))[0]._replace(offset=9)


@pytest.mark.parametrize(
    ("accepted", "beside"),
    [
        ([*EXACT.accepted, NEVER], "PHANTOM"),
        (accept(FIRST, SECOND, THIRD, RESEND), "FORGOTTEN"),
        (accept(FIRST, FIRST, SECOND, THIRD), "DOUBLED"),
        (accept(SECOND, FIRST, THIRD), "REORDERED"),
        (accept(FIRST, THIRD), "LOST"),
        (accept(SECOND, THIRD), "LOST"),
    ],
)
def test_a_gap_hides_nothing_else(accepted: list[Record], beside: str) -> None:
    """Records beyond the end stay phantoms, and outputs of deleted inputs are still judged."""
    history = replace(EXACT, inputs=INPUTS[1:], log_starts={0: 1}, sends=[], accepted=accepted)

    assert found(history) == {"GAP": 1, beside: 1}


def test_what_quarantine_kept_of_a_deleted_input() -> None:
    """A quarantined record of a deleted input needs no token of its attempt, and is not a phantom."""
    bare = quarantine(FIRST)._replace(key=None, value=b"{}", headers=quarantine(FIRST).headers[-2:])
    history = replace(EXACT, inputs=INPUTS[1:3], accepted=accept(SECOND, THIRD), quarantined=[bare])

    assert found(replace(history, sends=EXACT.sends[:3], log_starts={0: 1})) == {"GAP": 1}
