"""Checker of the fault tests on bridges: hops that a lane knew, and what the source's records say."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.harness.checker.findings import Anomaly
from tests.harness.history import Headers, History, Record
from tests.harness.source_cluster import crossed
from tests.support.histories import accept, arrive, divert, found, only, quarantine, story

SOURCE = b"to-paris/AAAAAAAAAAAAAAAAAAAAAA/0"
"""A group of lane 1."""
IGNORED: Headers = (("_RF_BRIDGE_IDS", b"ignore"),)


def bridge(
    offset: int,
    hop: int,
    confirmed: int = 0,
    id: bytes | None = None,  # noqa: A002 - its name
    source: bytes = SOURCE,
    headers: Headers = (),
    **more: Any,
) -> Record:
    told: Headers = (
        ("_RF_BRIDGE_DUPL_ID", b"%b/%d" % (source, hop)),
        ("_RF_BRIDGE_CONFIRMED", b"%d" % confirmed),
    )
    return arrive(offset, id, headers=(*told, *headers), **more)


def taken(*records: Record, partition: int = 0) -> list[Record]:
    """As a faultless lane accepts them: what bridges wrote is gone."""
    return [
        record._replace(headers=tuple(one for one in record.headers if not one[0].startswith("_RF_BRIDGE_")))
        for record in accept(*records, partition=partition)
    ]


def test_order_decides_within_a_way() -> None:
    """A later confirmation does not make an earlier hop a duplicate.

    Confirmations sent to another partition do not count here, but hops that arrived there do.
    """
    early, late = bridge(0, 3), bridge(1, 9, 8)
    assert found(story([early, late], taken(late))) == {"LOST": 1}

    told = bridge(0, 9, 8, partition=1)
    assert found(story([told, bridge(0, 3)], taken(told))) == {"LOST": 1}
    assert found(story([told, bridge(0, 9)], taken(told))) == {}
    assert found(story([bridge(0, 9, partition=1), bridge(0, 9)], [])) == {"LOST": 2}


def test_own_ids() -> None:
    """A hop's own ID is checked if the hop is new and IDs count, and is then added as well."""
    first, second = bridge(0, 0, id=b"a"), bridge(1, 1, id=b"a")
    ignored = bridge(2, 2, id=b"a", headers=IGNORED)
    later = arrive(3, b"a")
    assert found(story([first, second, ignored, later], taken(first, ignored))) == {}
    assert found(story([ignored, later], taken(ignored))) == {"LOST": 1}
    assert found(story([ignored, later], taken(ignored, later))) == {}
    assert found(story([first, ignored, bridge(4, 2, id=b"a", headers=IGNORED)], taken(first))) == {"LOST": 1}


def test_accepted_again() -> None:
    """A hop that is accepted again is reported once, whatever its own ID.

    It repeats another, lies below a confirmed offset, or its first arrival was a duplicate by ID.
    """
    first, again = bridge(0, 5, id=b"a"), bridge(1, 5, id=b"a")
    assert found(story([first, again], taken(first, again))) == {"FORGOTTEN": 1}

    told, below = bridge(2, 9, 8), bridge(3, 1)
    finding = only(story([told, below], taken(told, below)))
    assert str(finding).endswith("hop to-paris/AAAAAAAAAAAAAAAAAAAAAA/0/1 all below 8 had been confirmed")

    own, noted, free = arrive(0, b"a"), bridge(1, 5, id=b"a"), bridge(2, 5, id=b"b")
    assert found(story([own, noted, free], taken(own, free))) == {"FORGOTTEN": 1}


def test_beyond_the_promise() -> None:
    """A hop may be accepted again after more unconfirmed hops than the ring's size.

    A confirmed hop stays known, and a ring of size 0 lets all pass.
    """
    several = [bridge(index, index) for index in range(4)]
    sent = [*several, bridge(4, 0)]
    again, dropped = ([found(story(sent, taken(*accepted), capacity=size)) for size in (3, 4, 0)]
                      for accepted in (sent, several))  # fmt: skip

    assert again == [{"OVERRUN": 1}, {"FORGOTTEN": 1}, {}]
    assert dropped == [{}, {}, {"LOST": 1}]


def test_diverted() -> None:
    """A resend by hop is diverted without an original. Diverting a new record, or naming an original of another ID, is a wrong verdict."""
    first, again = bridge(0, 0, id=b"a"), bridge(1, 0, id=b"a")
    new, silent = bridge(1, 1, id=b"b"), bridge(1, 0, headers=IGNORED)

    def told(second: Record, *diverted: Record) -> dict[str, int]:
        return found(story([first, second], taken(first), divert=True, diverted=[*diverted]))

    assert told(again, divert(again, None)) == {}
    assert told(again) == {"LOST": 1}
    assert told(new, divert(new, None)) == told(silent, divert(silent, first)) == {"WRONG-VERDICT": 1}


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ((("_RF_BRIDGE_DUPL_ID", None),), "its hop"),
        ((("_RF_BRIDGE_DUPL_ID", b"b/short/0/1"),), "its bridge, or its source"),
        ((("_RF_BRIDGE_DUPL_ID", SOURCE + b"/01"),), "'01' is no number"),
        ((("_RF_BRIDGE_DUPL_ID", SOURCE + b"/9223372036854775807"),), "its source, or its offset"),
        ((("_RF_BRIDGE_DUPL_ID", SOURCE + b"/1"), ("_RF_BRIDGE_CONFIRMED", None)), "'' is no number"),
        ((("_RF_BRIDGE_DUPL_ID", SOURCE + b"/1"), ("_RF_BRIDGE_CONFIRMED", b"2")), "what is confirmed"),
        ((("_RF_BRIDGE_DUPL_ID", SOURCE + b"/1"), ("_RF_BRIDGE_IDS", b"check")), "what it says of its ID"),
    ],
)
def test_malformed(headers: Headers, why: str) -> None:
    """A malformed record belongs in quarantine: accepted, it is a phantom, and dropped, it is lost."""
    record = arrive(0, None, headers=headers)
    history = story([record], [], quarantined=[quarantine(record)])

    assert found(history) == {}
    assert str(only(story([record], []))).endswith(f"and malformed: {why}")
    assert found(story([record], taken(record))) == {"PHANTOM": 1, "LOST": 1}


def test_headers() -> None:
    """A bridged record keeps the members that it passed, from the last of several headers.

    All other records lose that header, and the hop header is always removed.
    """
    passed: Headers = (("_RF_HOPS", b"of repeats the last"), ("_RF_HOPS", b"berlin"))
    over, plain = bridge(0, 0, headers=passed), arrive(1, None, headers=passed)
    [kept, stripped] = taken(over, plain)
    kept = kept._replace(headers=tuple(header for header in kept.headers if header != passed[0]))
    none = tuple(header for header in stripped.headers if header[0] != "_RF_HOPS")
    stripped = stripped._replace(headers=none)

    assert found(story([over, plain], [kept, stripped])) == {}
    lost = tuple(header for header in kept.headers if header[0] != "_RF_HOPS")
    left = (*kept.headers, ("_RF_BRIDGE_IDS", b"ignore"))
    forged = (*stripped.headers, passed[1])
    for wrong in (
        [kept._replace(headers=lost), stripped],
        [kept._replace(headers=left), stripped],
        [kept, stripped._replace(headers=forged)],
    ):
        assert found(story([over, plain], wrong)) == {"CORRUPTED": 1}


TOPIC_ID = b"A" * 22
_ID = ("_AMQ_DUPL_ID", b"id")
SENT_TO_SOURCE = [
    Record("t", 0, offset, b"g", b"value", (("t", b"%d" % offset), *((_ID,) if offset < 2 else ())), 7)
    for offset in range(4)
]
"""The first two are one message, sent twice."""


def _arrived(record: Record, offset: int) -> Record:
    ours = (
        ("_RF_BRIDGE_DUPL_ID", b"b/%b/%d/%d" % (TOPIC_ID, record.partition, record.offset)),
        ("_RF_BRIDGE_CONFIRMED", b"0"),
    )
    return record._replace(partition=1, offset=offset, headers=(*record.headers, *ours))  # fmt: skip


def _accepted(arrived: Record, offset: int) -> Record:
    kept = tuple(header for header in arrived.headers if not header[0].startswith("_RF_"))
    source = (("_RF_SOURCE", str(arrived.place).encode()),)
    return arrived._replace(topic="t.accepted", offset=offset, headers=(*kept, *source))


def _history(arrived: Sequence[int] = (0, 1, 1, 2, 3), accepted: Sequence[int] = (0, 3, 4)) -> History:
    """Which of the source arrived, in this order; and which of the arrived were accepted."""
    inputs = [_arrived(SENT_TO_SOURCE[number], offset) for offset, number in enumerate(arrived)]
    return History(
        "t", 2, 10, lambda _: 1, inputs=inputs,
        accepted=[_accepted(inputs[number], offset) for offset, number in enumerate(accepted)],
    )  # fmt: skip


def _changed(**change: Any) -> History:
    history = _history()
    return replace(history, inputs=[history.inputs[0]._replace(**change), *history.inputs[1:]])


BEYOND = _arrived(SENT_TO_SOURCE[0]._replace(offset=9), 5)
WITHOUT_A_HOP = SENT_TO_SOURCE[0]._replace(partition=1, offset=6)


@pytest.mark.parametrize(
    ("history", "anomalies"),
    [
        (_history(), []),  # sent twice, or brought twice, and accepted once
        (_history(arrived=(0, 1, 2), accepted=(0, 2)), [Anomaly.LOST, Anomaly.LOST]),
        (_history(accepted=(0, 3)), [Anomaly.LOST]),
        (_history(accepted=(0, 1, 3, 4)), [Anomaly.DOUBLED]),
        (_history(arrived=(0, 1, 3, 2), accepted=(0, 2, 3)), [Anomaly.REORDERED]),
        (_changed(key=b"h"), [Anomaly.CORRUPTED]),
        (_changed(value=None), [Anomaly.CORRUPTED]),
        (_changed(timestamp=8), [Anomaly.CORRUPTED]),
        (replace(_history(), inputs=[*_history().inputs, BEYOND, WITHOUT_A_HOP]), [Anomaly.PHANTOM] * 2),
    ],
)
def test_from_the_source(history: History, anomalies: list[Anomaly]) -> None:
    assert [finding.anomaly for finding in crossed(SENT_TO_SOURCE, history, ids_ignored=False)] == anomalies


def test_ids_ignored() -> None:
    """A target that ignores IDs must accept both copies of a message that was sent twice."""
    (lost,) = crossed(SENT_TO_SOURCE, _history(), ids_ignored=True)

    assert lost.anomaly is Anomaly.LOST
    assert crossed(SENT_TO_SOURCE, _history(accepted=(0, 1, 3, 4)), ids_ignored=True) == []
