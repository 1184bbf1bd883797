"""The fault tests' checker, on histories written by hand: each anomaly, and beside each what is nearly one.

Here what becomes of an input; order, rings and contents have files of their own.
"""

from dataclasses import replace

import pytest

from tests.harness.checker.check import Anomaly, check, counts
from tests.harness.history import History, Outcome, Place, Record
from tests.support.exact_history import EXACT, FIRST, INPUTS, RESEND, SECOND, THIRD
from tests.support.histories import A, B, D, accept, arrive, divert, found, observe, only, quarantine, story


def test_an_exact_run() -> None:
    """An exact run has no anomaly, in whichever order its topics were read."""
    assert check(EXACT) == []
    assert check(replace(EXACT, inputs=INPUTS[::-1], accepted=EXACT.accepted[::-1])) == []
    assert counts([]) == dict.fromkeys(
        ("LOST", "DOUBLED", "PHANTOM", "REORDERED", "FORGOTTEN", "OVERRUN", "CROSS-LANE", "WRONG-VERDICT",
         "CORRUPTED", "TORN", "GAP"), 0,
    )  # fmt: skip


PLAIN, NULL = arrive(1, None), arrive(2, None, headers=(("_AMQ_DUPL_ID", None),))
EMPTY, EMPTY_AGAIN = arrive(3, b""), arrive(4, b"")
OTHER_LANE = arrive(0, A, b"h1", partition=1)
ELSEWHERE, UNKNOWN_ID = arrive(9, A, partition=1), arrive(9, D)
OTHER_VALUE = arrive(4, A)._replace(value=b"w")
VALUES = [FIRST, RESEND, OTHER_VALUE, OTHER_VALUE._replace(offset=5)]
SENT = EXACT.sends[:3]
IN_QUARANTINE = replace(
    EXACT, accepted=accept(FIRST, THIRD), quarantined=[quarantine(SECOND)], inputs=[*INPUTS, arrive(4, B)], sends=[]
)  # fmt: skip
OBSERVED = [
    *(observe(record, b"ACCEPTED", number) for number, record in enumerate(INPUTS[:3])),
    observe(RESEND, b"DUPLICATE orders/0/0", 3),
]
SIMPLE: dict[str, tuple[History, dict[str, int]]] = {
    "a null ID is none": (story([PLAIN, NULL], accept(PLAIN)), {"LOST": 1}),
    "an empty ID is none": (story([EMPTY, EMPTY_AGAIN], accept(EMPTY)), {"LOST": 1}),
    "the original is in another lane": (
        story([arrive(0, A, b"g0"), arrive(0, A, b"g1", partition=1)], accept(arrive(0, A, b"g0"))),
        {"LOST": 1},
    ),
    "quarantine is a fate": (replace(IN_QUARANTINE, inputs=INPUTS), {}),
    "its original is only in quarantine": (IN_QUARANTINE, {"LOST": 1}),
    "detection is off": (replace(EXACT, capacity=0, accepted=accept(*INPUTS)), {}),
    "by value": (story(VALUES, accept(FIRST, OTHER_VALUE), by_value=True), {}),
    "by value, lost": (story(VALUES, accept(FIRST), by_value=True), {"LOST": 2}),
    "by value, again": (story(VALUES, accept(FIRST, *VALUES[2:]), by_value=True), {"FORGOTTEN": 1}),
    "another value is no other ID": (story(VALUES, accept(FIRST, OTHER_VALUE)), {"FORGOTTEN": 1}),
    "a verdict where duplicates are dropped": (story(INPUTS, OBSERVED), {"CORRUPTED": 4}),
    "diverted": (replace(EXACT, divert=True, diverted=[divert(RESEND, FIRST)]), {}),
    "accepted and quarantined": (replace(EXACT, quarantined=[quarantine(FIRST)]), {"DOUBLED": 1}),
    "diverted, with an original of another lane": (
        story(
            [*INPUTS, OTHER_LANE],
            [*EXACT.accepted, *accept(OTHER_LANE, partition=1)],
            divert=True,
            diverted=[divert(RESEND, OTHER_LANE)],
        ),
        {"CROSS-LANE": 1, "WRONG-VERDICT": 1},
    ),
    "diverted from nowhere": (replace(EXACT, diverted=[divert(UNKNOWN_ID, FIRST)]), {"PHANTOM": 1}),
    "in doubt": (replace(EXACT, sends=[*SENT, replace(EXACT.sends[3], outcome=Outcome.UNKNOWN)]), {}),
    "order unknown, the later accepted": (story([FIRST, ELSEWHERE], accept(ELSEWHERE)), {}),
    "order unknown, the earlier accepted": (story([FIRST, ELSEWHERE], accept(FIRST)), {}),
}


@pytest.mark.parametrize(("history", "anomalies"), SIMPLE.values(), ids=SIMPLE)
def test_simple_histories(history: History, anomalies: dict[str, int]) -> None:
    assert found(history) == anomalies


@pytest.mark.parametrize(
    ("accepted", "anomalies"),
    [
        (OBSERVED, {}),
        ([*OBSERVED[:3], observe(RESEND, b"DUPLICATE", 3)], {}),
        (OBSERVED[:3], {"LOST": 1}),
        ([*OBSERVED[:3], observe(RESEND, b"ACCEPTED", 3)], {"FORGOTTEN": 1}),
        ([*OBSERVED[:3], observe(RESEND, b"DUPLICATE orders/0/1", 3)], {"WRONG-VERDICT": 1}),
        ([observe(FIRST, b"DUPLICATE orders/0/0", 0), *OBSERVED[1:]], {"WRONG-VERDICT": 2}),
        ([observe(FIRST, b"UNCHECKED", 0), *OBSERVED[1:]], {"CORRUPTED": 1}),
        ([observe(RESEND, b"DUPLICATE orders/0/0", 0), *OBSERVED[:3]], {"REORDERED": 1}),
    ],
)
def test_observed(accepted: list[Record], anomalies: dict[str, int]) -> None:
    """If duplicates pass, each is there once, in order, and its verdict is judged as that of a diverted one."""
    written = [record._replace(offset=2 * at) for at, record in enumerate(accepted)]

    assert found(story(INPUTS, written, observe=True)) == anomalies


def test_lost() -> None:
    """An input that is nowhere is lost, and the finding gives its place and content."""
    finding = only(replace(EXACT, accepted=accept(FIRST, THIRD)))

    assert finding.anomaly is Anomaly.LOST
    assert finding.places == (Place("orders", 0, 1),)
    assert str(finding) == (
        "LOST orders/0/1 (ID 'b', group 'g') is neither accepted nor quarantined, "
        "and no other of its ID was accepted in its lane"
    )


def test_doubled() -> None:
    """An input accepted twice is DOUBLED alone, and neither out of order nor forgotten."""
    finding = only(replace(EXACT, accepted=accept(FIRST, SECOND, FIRST, THIRD)))

    assert finding.anomaly is Anomaly.DOUBLED
    assert finding.places == (FIRST.place, Place("orders.accepted", 0, 0), Place("orders.accepted", 0, 4))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (b"orders/0/4", "the input ends at 4"),
        (b"orders/0/1", "no committed record stands there"),
        (b"orders/2/0", "no place of the input"),
        (b"payments/0/0", "no place of the input"),
        (b"orders/0", "names no input record"),
        (b"orders/0/" + b"9" * 5_000, "names no input record"),
        (None, "names no input record"),
    ],
)
def test_phantom(source: bytes | None, why: str) -> None:
    """An output without an input is a phantom: beyond the end, in a hole of an aborted record, elsewhere, or nowhere."""
    made_up = THIRD._replace(topic="orders.accepted", offset=9, headers=(("_RF_SOURCE", source),))
    finding = only(story([FIRST, THIRD, RESEND], [*accept(FIRST, THIRD), made_up]))

    assert (finding.anomaly, finding.places) == (Anomaly.PHANTOM, (made_up.place,))
    assert why in finding.text


def test_wrong_verdict() -> None:
    """The first is dropped and its resend accepted: nothing was there for it to be a duplicate of."""
    finding = only(replace(EXACT, accepted=accept(SECOND, THIRD, RESEND)))

    assert (finding.anomaly, finding.places) == (Anomaly.WRONG_VERDICT, (FIRST.place,))


@pytest.mark.parametrize(
    "original", [SECOND, RESEND, arrive(4, A), arrive(0, A, partition=1), b"nonsense", b"orders/0/99"]
)
def test_wrong_original(original: Record | bytes) -> None:
    """A diverted duplicate names an accepted input of its ID, before it; not any other place."""
    inputs = [*INPUTS, arrive(4, A)]
    diverted = [divert(RESEND, original), divert(inputs[4], FIRST, offset=1)]

    history = replace(EXACT, inputs=inputs, sends=[], diverted=diverted, divert=True)

    assert found(history) == {"WRONG-VERDICT": 1}
