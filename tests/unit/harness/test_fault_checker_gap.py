"""The fault tests' checker on what retention deleted: GAP, and what is still known."""

from dataclasses import replace
from typing import Any

from tests.harness.checker.check import Anomaly
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
    D,
    accept,
    arrive,
    found,
    only,
    quarantine,
    story,
)


def test_gap() -> None:
    """What retention deleted is unknown: no phantom, no loss, but never clean."""
    history = replace(EXACT, inputs=INPUTS[1:], log_starts={0: 1, 1: 0})

    finding = only(history)
    assert finding.anomaly is Anomaly.GAP
    assert finding.places == (Place(TOPIC, 0, 1),)
    assert "1 outputs came from there" in finding.text
    assert "attempts" not in finding.text


def test_gap_without_outputs() -> None:
    """A deleted beginning is a gap even if nothing came of it; then acknowledged attempts are in doubt."""
    history = replace(EXACT, inputs=[THIRD], accepted=accept(THIRD), log_starts={0: 2})

    finding = only(history)
    assert finding.anomaly is Anomaly.GAP
    assert "3 acknowledged attempts are found nowhere" in finding.text


def test_a_gap_hides_nothing_else() -> None:
    """Beyond the end is beyond the end; what came of deleted inputs is still judged by what it says."""
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


def test_the_first_that_is_left_is_no_gap() -> None:
    """What stands at the log's start must be there."""
    history = replace(EXACT, inputs=INPUTS[2:], log_starts={0: 1}, sends=[])

    assert found(history) == {"GAP": 1, "PHANTOM": 1}


def test_ids_in_deleted_keys() -> None:
    """Where the key is the ID and a header the group, the deleted input's key is in ``_RF_KEY``."""
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
    """It need not have the token of its attempt, and is no phantom for that."""
    bare = quarantine(FIRST)._replace(key=None, value=b"{}", headers=quarantine(FIRST).headers[-2:])
    history = replace(EXACT, inputs=INPUTS[1:3], accepted=accept(SECOND, THIRD), quarantined=[bare])

    assert found(replace(history, sends=EXACT.sends[:3], log_starts={0: 1})) == {"GAP": 1}
