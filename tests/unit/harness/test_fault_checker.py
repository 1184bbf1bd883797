"""The fault tests' checker, on histories written by hand: each anomaly, and beside each what is nearly one.

Here what becomes of an input; order, rings and contents have files of their own.
"""

from collections import Counter
from dataclasses import replace

import pytest

from tests.harness.checker.check import Anomaly, check, counts
from tests.harness.history import Outcome, Place, Record
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
    D,
    accept,
    arrive,
    attempts,
    divert,
    found,
    only,
    quarantine,
    story,
)


def test_an_exact_run() -> None:
    """Each ID once, in order, unchanged; the resend is dropped; in whatever order the topics were read."""
    assert check(EXACT) == []
    assert check(replace(EXACT, inputs=INPUTS[::-1], accepted=EXACT.accepted[::-1])) == []
    assert counts([]) == dict.fromkeys(
        ("LOST", "DOUBLED", "PHANTOM", "REORDERED", "FORGOTTEN", "OVERRUN", "CROSS-LANE", "WRONG-VERDICT",
         "CORRUPTED", "TORN", "GAP"), 0,
    )  # fmt: skip


def test_nothing_happened() -> None:
    assert check(story([], [])) == []


# -- LOST ----------------------------------------------------------------------------------------------------------


def test_lost() -> None:
    """An input that is nowhere; the finding says where it stands and what it was."""
    finding = only(replace(EXACT, accepted=accept(FIRST, THIRD)))

    assert finding.anomaly is Anomaly.LOST
    assert finding.places == (Place(TOPIC, 0, 1),)
    assert str(finding) == (
        "LOST orders/0/1 (ID 'b', group 'g') is neither accepted nor quarantined, "
        "and no other of its ID was accepted in its lane"
    )


def test_lost_with_its_resend() -> None:
    """If no copy of an ID comes through, each of its inputs is lost."""
    assert found(replace(EXACT, accepted=accept(SECOND, THIRD))) == {"LOST": 2}


def test_lost_without_an_id() -> None:
    """A message without an ID is not a duplicate of anything; a null or empty value is no ID."""
    plain, other = arrive(0, None), arrive(1, None)
    null = arrive(2, None, headers=(("_AMQ_DUPL_ID", None),))
    empty, again = arrive(3, b""), arrive(4, b"")

    assert found(story([plain, other], accept(plain))) == {"LOST": 1}
    assert found(story([plain, null], accept(plain))) == {"LOST": 1}
    assert found(story([empty, again], accept(empty))) == {"LOST": 1}
    assert found(story([empty, again], accept(empty, again))) == {}


def test_lost_where_the_original_is_in_another_lane() -> None:
    """A resend of another group is no duplicate: its lane never saw the ID."""
    here, there = arrive(0, A, b"g0"), arrive(0, A, b"g1", partition=1)

    assert found(story([here, there], accept(here))) == {"LOST": 1}


def test_lost_with_detection_off() -> None:
    """With a ring of size 0 nothing is a duplicate."""
    assert found(replace(EXACT, capacity=0)) == {"LOST": 1}
    assert found(replace(EXACT, capacity=0, accepted=accept(*INPUTS))) == {}


def test_lost_where_duplicates_are_diverted() -> None:
    assert found(replace(EXACT, divert=True)) == {"LOST": 1}
    assert found(replace(EXACT, divert=True, diverted=[divert(RESEND, FIRST)])) == {}


def test_not_lost_in_quarantine() -> None:
    """Quarantine is a fate; but a duplicate of what is there only has no original."""
    history = replace(EXACT, accepted=accept(FIRST, THIRD), quarantined=[quarantine(SECOND)])
    copy = arrive(4, B)

    assert found(history) == {}
    assert found(replace(history, inputs=[*INPUTS, copy], sends=[])) == {"LOST": 1}


def test_lost_by_kafka() -> None:
    """An acknowledged attempt that is not in the input; one that failed or is in doubt need not be there."""
    unseen = arrive(9, D)

    finding = only(replace(EXACT, sends=attempts(*INPUTS, unseen)))
    assert finding.anomaly is Anomaly.LOST
    assert "attempt '0-9'" in finding.text
    assert finding.places == ()
    for outcome in (Outcome.FAIL, Outcome.UNKNOWN):
        assert found(replace(EXACT, sends=[*EXACT.sends, *attempts(unseen, outcome=outcome)])) == {}


# -- DOUBLED -------------------------------------------------------------------------------------------------------


def test_doubled() -> None:
    """One input accepted twice is that alone: neither out of order nor forgotten."""
    finding = only(replace(EXACT, accepted=accept(FIRST, SECOND, FIRST, THIRD)))

    assert finding.anomaly is Anomaly.DOUBLED
    assert finding.places == (FIRST.place, Place("orders.accepted", 0, 0), Place("orders.accepted", 0, 4))


def test_doubled_in_another_partition() -> None:
    """The copy in another partition does not make a group scattered."""
    copy = accept(FIRST, partition=1)

    assert found(replace(EXACT, accepted=[*EXACT.accepted, *copy])) == {"DOUBLED": 1}


def test_doubled_batch() -> None:
    """A batch that was written again: each record is doubled, and nothing else is said."""
    assert found(replace(EXACT, accepted=accept(FIRST, SECOND, FIRST, SECOND, THIRD))) == {"DOUBLED": 2}


def test_two_fates() -> None:
    """Accepted and diverted, accepted and quarantined, or diverted twice: one input has one fate."""
    both = [divert(RESEND, FIRST), divert(RESEND, FIRST, offset=1)]

    assert found(replace(EXACT, quarantined=[quarantine(FIRST)])) == {"DOUBLED": 1}
    assert found(replace(EXACT, diverted=[divert(FIRST, FIRST)])) == {"DOUBLED": 1}
    assert found(replace(EXACT, diverted=both)) == {"DOUBLED": 1}


def test_two_alike_are_not_doubled() -> None:
    """Two inputs without an ID, alike to the last byte, are two."""
    one = arrive(0, None)
    other = arrive(1, None)._replace(headers=one.headers)

    assert found(story([one, other], accept(one, other))) == {}


# -- PHANTOM -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (b"orders/0/4", "the input ends at 4"),
        (b"orders/0/1", "no committed record stands there"),
        (b"orders/2/0", "no place of the input"),
        (b"payments/0/0", "no place of the input"),
        (b"orders/0", "names no input record"),
        (b"orders/0/-1", "names no input record"),
        (b"orders/0/" + b"9" * 5_000, "names no input record"),
        (None, "names no input record"),
    ],
)
def test_phantom(source: bytes | None, why: str) -> None:
    """An output of no input: beyond the end, in a hole (an aborted record), elsewhere, or nowhere."""
    inputs = [FIRST, THIRD, RESEND]
    made_up = THIRD._replace(topic="orders.accepted", offset=9, headers=(("_RF_SOURCE", source),))

    finding = only(story(inputs, [*accept(FIRST, THIRD), made_up]))
    assert finding.anomaly is Anomaly.PHANTOM
    assert finding.places == (made_up.place,)
    assert why in finding.text


def test_phantom_elsewhere() -> None:
    """What is diverted or quarantined must come from somewhere too."""
    never = arrive(9, D)

    assert found(replace(EXACT, diverted=[divert(never, FIRST)])) == {"PHANTOM": 1}
    assert found(replace(EXACT, quarantined=[quarantine(never)])) == {"PHANTOM": 1}


def test_no_phantom_from_topics_with_slashes() -> None:
    """The last two parts of a source are partition and offset, whatever stands before."""
    assert Place.parse(b"a/b/1/2") == Place("a/b", 1, 2)


def test_phantom_input() -> None:
    """An input of an attempt that failed for certain, or that nobody made; one in doubt may be there."""
    last = [*attempts(FIRST, SECOND, THIRD)]

    assert found(replace(EXACT, sends=[*last, *attempts(RESEND, outcome=Outcome.FAIL)])) == {"PHANTOM": 1}
    assert found(replace(EXACT, sends=last)) == {"PHANTOM": 1}
    assert found(replace(EXACT, sends=[*last, *attempts(RESEND, outcome=Outcome.UNKNOWN)])) == {}
    assert found(replace(EXACT, sends=[])) == {}


def test_an_attempt_written_twice() -> None:
    """A client without idempotence may write one attempt twice; to us these are two inputs."""
    copy = RESEND._replace(offset=4)

    assert found(replace(EXACT, inputs=[*INPUTS, copy])) == {}


# -- WRONG-VERDICT -------------------------------------------------------------------------------------------------


def test_wrong_verdict() -> None:
    """The first is dropped and its resend accepted: nothing was there for it to be a duplicate of."""
    finding = only(replace(EXACT, accepted=accept(SECOND, THIRD, RESEND)))

    assert finding.anomaly is Anomaly.WRONG_VERDICT
    assert finding.places == (FIRST.place,)


def test_no_wrong_verdict_where_the_order_is_unknown() -> None:
    """The accepted one may have come first, from another partition, whatever the offsets say."""
    early, late = arrive(0, A), arrive(9, A, partition=1)

    assert found(story([early, late], accept(late))) == {}
    assert found(story([early, late], accept(early))) == {}


@pytest.mark.parametrize(
    "original", [SECOND, RESEND, arrive(4, A), arrive(0, A, partition=1), b"nonsense", b"orders/0/99"]
)
def test_wrong_original(original: Record | bytes) -> None:
    """A diverted duplicate names an accepted input of its ID, before it; not any other place."""
    inputs = [*INPUTS, arrive(4, A)]
    diverted = [divert(RESEND, original), divert(inputs[4], FIRST, offset=1)]

    assert found(replace(EXACT, inputs=inputs, sends=[], diverted=diverted, divert=True)) == {
        "WRONG-VERDICT": 1
    }


def test_missing_original() -> None:
    """The header must be there; null says that the original's place is no longer known."""
    diverted = divert(RESEND, None)
    history = replace(EXACT, divert=True, diverted=[diverted])

    assert found(history) == {}
    without = diverted._replace(headers=diverted.headers[:-1])
    assert found(replace(history, diverted=[without])) == {"WRONG-VERDICT": 1}


def test_diverted_without_an_original() -> None:
    """What has no ID, or of whose ID nothing was accepted, is diverted in the wrong."""
    plain, lonely = arrive(4, None), arrive(5, D)
    inputs = [*INPUTS[:3], plain, lonely]
    diverted = [divert(plain, FIRST), divert(lonely, lonely, offset=1)]

    seen = found(story(inputs, accept(*INPUTS[:3]), divert=True, diverted=diverted))
    assert seen == {"WRONG-VERDICT": 2}


def test_diverted_from_its_own_resend() -> None:
    """The self-rejection trap: an input is called the duplicate of one that came after it."""
    history = replace(EXACT, accepted=accept(SECOND, THIRD, RESEND), divert=True)

    assert found(replace(history, diverted=[divert(FIRST, RESEND)])) == {"WRONG-VERDICT": 1}


def test_an_original_that_was_none() -> None:
    """An earlier one of its ID that was itself a duplicate, or is at home elsewhere, is not the original."""
    again, elsewhere = arrive(4, A), arrive(0, A, b"h1", partition=1)
    outputs = [*EXACT.accepted, *accept(elsewhere, partition=1)]
    inputs = [*INPUTS, again, elsewhere]
    first = divert(RESEND, FIRST)
    run = replace(EXACT, inputs=inputs, accepted=outputs, sends=[], divert=True)

    right = replace(run, diverted=[first, divert(again, FIRST, offset=1)])
    assert found(right) == {"CROSS-LANE": 1}
    for wrong in (RESEND, elsewhere):
        history = replace(run, diverted=[first, divert(again, wrong, offset=1)])
        assert found(history) == {"CROSS-LANE": 1, "WRONG-VERDICT": 1}


# -- the checker itself --------------------------------------------------------------------------------------------


def test_what_is_no_input_is_refused() -> None:
    """A history that was put together wrongly is a mistake of the test, not of Ringfence."""
    for stray in (FIRST._replace(topic="payments"), FIRST._replace(partition=2)):
        with pytest.raises(ValueError, match="no input of this history"):
            check(story([stray], []))


def test_many_at_once() -> None:
    """Anomalies do not hide one another, and come in the order of their names."""
    inputs = [*INPUTS, arrive(4, D), arrive(5, b"e")]
    outputs = accept(FIRST, FIRST, THIRD, SECOND, RESEND, inputs[5]._replace(value=b"w"))

    findings = check(story(inputs, outputs))
    assert Counter(finding.anomaly for finding in findings) == dict.fromkeys(
        (Anomaly.LOST, Anomaly.DOUBLED, Anomaly.REORDERED, Anomaly.FORGOTTEN, Anomaly.CORRUPTED), 1
    )
    assert [finding.anomaly for finding in findings] == [
        anomaly for anomaly in Anomaly if anomaly in {finding.anomaly for finding in findings}
    ]
