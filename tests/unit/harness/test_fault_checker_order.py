"""Checker of the fault tests on order, memory and gaps, with histories that are nearly wrong."""

from dataclasses import replace
from hashlib import blake2b
from typing import Any

import pytest

from tests.harness.checker.check import Anomaly, check
from tests.harness.history import Place
from tests.support.histories import (
    EXACT,
    FIRST,
    INPUTS,
    RESEND,
    SECOND,
    THIRD,
    TOPIC,
    A,
    B,
    C,
    D,
    accept,
    arrive,
    found,
    only,
    quarantine,
    story,
)

# -- REORDERED -----------------------------------------------------------------------------------------------------


def test_swapped() -> None:
    """Two records of one group in the wrong order are one finding, with their place."""
    finding = only(replace(EXACT, accepted=accept(FIRST, THIRD, SECOND)))

    assert finding.anomaly is Anomaly.REORDERED
    assert finding.places == (SECOND.place, Place("orders.accepted", 0, 4), THIRD.place)


@pytest.mark.parametrize("shift", ["late", "early"])
def test_a_shift_is_one_finding(shift: str) -> None:
    """A record that is a thousand places too late or too early breaks the order once."""
    inputs = [arrive(number, b"id-%d-" % number) for number in range(1_000)]
    moved = [*inputs[1:], inputs[0]] if shift == "late" else [inputs[-1], *inputs[:-1]]

    assert found(story(inputs, accept(*moved))) == {"REORDERED": 1}


# -- FORGOTTEN, OVERRUN, CROSS-LANE --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "expected"), [(1, "OVERRUN"), (2, "OVERRUN"), (3, "FORGOTTEN"), (4, "FORGOTTEN")]
)
def test_forgotten_or_overrun(capacity: int, expected: str) -> None:
    """A ring of three still holds the first ID after two others, and a ring of two does not."""
    finding = only(replace(EXACT, capacity=capacity, accepted=accept(*INPUTS)))

    assert finding.anomaly.value == expected
    assert finding.places == (RESEND.place, FIRST.place)
    assert f"with 2 IDs between them; the ring promises {capacity}" in finding.text


def test_forwarded_records_may_have_come_between() -> None:
    forwarded = [arrive(number, b"f%d-" % number, b"h", partition=1) for number in range(3)]
    inputs = [FIRST, arrive(1, A), *forwarded]
    accepted = [*accept(FIRST, inputs[1]), *accept(*forwarded, partition=1)]

    assert found(story(inputs, accepted, capacity=4)) == {"FORGOTTEN": 1}
    assert found(story(inputs, accepted, capacity=3)) == {"OVERRUN": 1}


def test_the_output_shows_what_came_between() -> None:
    """A lane's records are in its own order in each partition of the output."""
    forwarded = [arrive(number, b"f%d-" % number, b"h", partition=1) for number in range(3)]
    again = arrive(1, A)
    inputs = [FIRST, again, *forwarded]

    after = accept(FIRST, again, *forwarded)
    assert found(story(inputs, after, capacity=1)) == {"FORGOTTEN": 1}
    between = accept(FIRST, forwarded[0], forwarded[1], again, forwarded[2])
    assert found(story(inputs, between, capacity=3)) == {"FORGOTTEN": 1}
    assert found(story(inputs, between, capacity=2)) == {"OVERRUN": 1}


def test_an_output_out_of_order_is_no_witness() -> None:
    """The order of the input alone counts if lane and output disagree about it."""
    one, two, again = arrive(1, B, b"h"), arrive(2, C, b"i"), arrive(3, A)
    forwarded = arrive(0, D, b"j", partition=1)
    late = accept(FIRST, again, one, two, forwarded)
    inputs = [FIRST, one, two, again, forwarded]

    assert found(story(inputs, late, capacity=4)) == {"FORGOTTEN": 1}
    assert found(story(inputs, late, capacity=3)) == {"OVERRUN": 1}


def test_an_original_from_another_partition() -> None:
    """Two of one ID from two partitions, in an order that nobody saw: the larger distance counts."""
    mine = [FIRST, SECOND, THIRD]
    copy = arrive(0, A, None, partition=1)
    inputs = [*mine, copy]
    accepted = [*accept(*mine), *accept(copy, partition=1)]

    assert found(story(inputs, accepted, capacity=3)) == {"FORGOTTEN": 1}
    assert found(story(inputs, accepted, capacity=2)) == {"OVERRUN": 1}


def test_cross_lane() -> None:
    """An ID accepted in two lanes, because the resend had another group, is CROSS-LANE."""
    here, there = arrive(0, A, b"g0"), arrive(0, A, b"g1", partition=1)

    finding = only(story([here, there], [*accept(here), *accept(there, partition=1)]))
    assert finding.anomaly is Anomaly.CROSS_LANE
    assert finding.places == (here.place, there.place)


def test_an_id_without_a_group_is_at_home_by_its_hash() -> None:
    """A long ID by that of its digest; a group, however long, by its own."""
    asked: list[bytes] = []

    def home(key: bytes) -> int:
        asked.append(key)
        return 0

    short, long = arrive(0, b"x" * 256, None), arrive(1, b"x" * 257, None)
    grouped = arrive(2, A, b"y" * 257)

    assert check(story([short, long, grouped], accept(short, long, grouped), home=home)) == []
    assert asked == [b"x" * 256, blake2b(b"x" * 257, digest_size=32).digest(), b"y" * 257]


def test_gap() -> None:
    """A record that retention deleted is unknown: neither a phantom nor a loss, but never clean."""
    history = replace(EXACT, inputs=INPUTS[1:], log_starts={0: 1, 1: 0})

    finding = only(history)
    assert finding.anomaly is Anomaly.GAP
    assert finding.places == (Place(TOPIC, 0, 1),)
    assert "1 outputs came from there" in finding.text
    assert "attempts" not in finding.text


def test_a_gap_hides_nothing_else() -> None:
    """A gap hides nothing else: records beyond the end stay phantoms, and outputs of deleted inputs are still judged."""
    gap: dict[str, Any] = {"inputs": INPUTS[1:], "log_starts": {0: 1}, "sends": []}
    never = accept(arrive(9, D, b"h"))[0]._replace(offset=9)

    assert found(replace(EXACT, **gap, accepted=[*EXACT.accepted, never])) == {"GAP": 1, "PHANTOM": 1}
    assert found(replace(EXACT, **gap, accepted=accept(FIRST, SECOND, THIRD, RESEND))) == {
        "GAP": 1,
        "FORGOTTEN": 1,
    }
    assert found(replace(EXACT, **gap, accepted=accept(FIRST, FIRST, SECOND, THIRD))) == {
        "GAP": 1,
        "DOUBLED": 1,
    }
    assert found(replace(EXACT, **gap, accepted=accept(SECOND, FIRST, THIRD))) == {
        "GAP": 1,
        "REORDERED": 1,
    }
    assert found(replace(EXACT, **gap, accepted=accept(FIRST, THIRD))) == {"GAP": 1, "LOST": 1}
    assert found(replace(EXACT, **gap, accepted=accept(SECOND, THIRD))) == {"GAP": 1, "LOST": 1}


def test_ids_in_deleted_keys() -> None:
    original = arrive(0, None, A, headers=(("region", b"n"),))
    resend = arrive(1, None, A, headers=(("region", b"n"),))
    (output,) = accept(original)
    output = output._replace(key=b"n", headers=(*output.headers, ("_RF_KEY", A)))
    history = story(
        [resend], [output], log_starts={0: 1},
        id_of=lambda record: record.key, group_of=lambda record: record.header("region"),
    )  # fmt: skip

    assert found(history) == {"GAP": 1}


def test_what_quarantine_kept_of_a_deleted_input() -> None:
    """A quarantined record of a deleted input needs no token of its attempt, and is not a phantom."""
    bare = quarantine(FIRST)._replace(key=None, value=b"{}", headers=quarantine(FIRST).headers[-2:])
    history = replace(EXACT, inputs=INPUTS[1:3], accepted=accept(SECOND, THIRD), quarantined=[bare])

    assert found(replace(history, sends=EXACT.sends[:3], log_starts={0: 1})) == {"GAP": 1}
