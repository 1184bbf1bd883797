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
    own, told = ("_RF_BRIDGE_DUPL_ID", b"%b/%d" % (source, hop)), ("_RF_BRIDGE_CONFIRMED", b"%d" % confirmed)
    return arrive(offset, id, headers=(own, told, *headers), **more)


def taken(*records: Record, partition: int = 0) -> list[Record]:
    """As a faultless lane accepts them: what bridges wrote is gone."""
    return [
        record._replace(headers=tuple(one for one in record.headers if not one[0].startswith("_RF_BRIDGE_")))
        for record in accept(*records, partition=partition)
    ]


EARLY, LATE, TOLD = bridge(0, 3), bridge(1, 9, 8), bridge(0, 9, 8, partition=1)
OWN, SAME, IGNORES = bridge(0, 0, id=b"a"), bridge(1, 1, id=b"a"), bridge(2, 2, id=b"a", headers=IGNORED)
PLAIN, RESENT = arrive(3, b"a"), bridge(1, 0, id=b"a")
NEW, SILENT = bridge(1, 1, id=b"b"), bridge(1, 0, headers=IGNORED)
NOTED, FREE = bridge(1, 5, id=b"a"), bridge(2, 5, id=b"b")
SEVERAL = [bridge(index, index) for index in range(4)]
SENT = [*SEVERAL, bridge(4, 0)]
PASSED: Headers = (("_RF_HOPS", b"of repeats the last"), ("_RF_HOPS", b"berlin"))
OVER, BESIDE = bridge(0, 0, headers=PASSED), arrive(1, None, headers=PASSED)


def _less(record: Record, gone: Headers) -> Record:
    return record._replace(headers=tuple(header for header in record.headers if header not in gone))


KEPT, STRIPPED = map(_less, taken(OVER, BESIDE), (PASSED[:1], PASSED))


def _diverted(second: Record, *diverted: Record) -> History:
    return story([OWN, second], taken(OWN), divert=True, diverted=[*diverted])


SIMPLE: dict[str, tuple[History, dict[str, int]]] = {
    "a later confirmation makes no earlier hop a duplicate": (story([EARLY, LATE], taken(LATE)), {"LOST": 1}),
    "a confirmation for another partition": (story([TOLD, EARLY], taken(TOLD)), {"LOST": 1}),
    "a hop that arrived in another partition": (story([TOLD, bridge(0, 9)], taken(TOLD)), {}),
    "neither was accepted": (story([bridge(0, 9, partition=1), bridge(0, 9)], []), {"LOST": 2}),
    "a new hop with a known ID": (story([OWN, SAME, IGNORES, PLAIN], taken(OWN, IGNORES)), {}),
    "an ignored ID is not added": (story([IGNORES, PLAIN], taken(IGNORES)), {"LOST": 1}),
    "an ignored ID is free": (story([IGNORES, PLAIN], taken(IGNORES, PLAIN)), {}),
    "an ignored ID again": (story([OWN, IGNORES, IGNORES._replace(offset=4)], taken(OWN)), {"LOST": 1}),
    "a hop twice": (story([NOTED, bridge(2, 5, id=b"a")], taken(NOTED, bridge(2, 5, id=b"a"))), {"FORGOTTEN": 1}),
    "a hop whose first arrival was a duplicate by its ID": (
        story([arrive(0, b"a"), NOTED, FREE], taken(arrive(0, b"a"), FREE)), {"FORGOTTEN": 1},
    ),
    **{
        f"ring of {size}, {name}": (story(SENT, taken(*accepted), capacity=size), anomalies)
        for name, accepted, of_size in (
            ("again after four hops", SENT, ({"OVERRUN": 1}, {"FORGOTTEN": 1}, {})),
            ("dropped after four hops", SEVERAL, ({}, {}, {"LOST": 1})),
        )
        for size, anomalies in zip((3, 4, 0), of_size, strict=True)
    },
    "a resend by hop has no original": (_diverted(RESENT, divert(RESENT, None)), {}),
    "a resend that is not diverted": (_diverted(RESENT), {"LOST": 1}),
    "a new record is diverted": (_diverted(NEW, divert(NEW, None)), {"WRONG-VERDICT": 1}),
    "an original of another ID": (_diverted(SILENT, divert(SILENT, OWN)), {"WRONG-VERDICT": 1}),
    "members that a bridged record passed stay, of repeats the last": (story([OVER, BESIDE], [KEPT, STRIPPED]), {}),
    **{
        f"headers: {name}": (story([OVER, BESIDE], wrong), {"CORRUPTED": 1})
        for name, wrong in (
            ("no members", [_less(KEPT, PASSED[1:]), STRIPPED]),
            ("one of the bridge", [KEPT._replace(headers=(*KEPT.headers, *IGNORED)), STRIPPED]),
            ("members of a plain record", [KEPT, STRIPPED._replace(headers=(*STRIPPED.headers, PASSED[1]))]),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize(("history", "anomalies"), SIMPLE.values(), ids=SIMPLE)
def test_simple_histories(history: History, anomalies: dict[str, int]) -> None:
    assert found(history) == anomalies


def test_below_a_confirmation() -> None:
    told, below = bridge(2, 9, 8), bridge(3, 1)
    finding = only(story([told, below], taken(told, below)))

    assert str(finding).endswith("hop to-paris/AAAAAAAAAAAAAAAAAAAAAA/0/1 all below 8 had been confirmed")


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


TOPIC_ID = b"A" * 22
_ID = ("_AMQ_DUPL_ID", b"id")
SENT_TO_SOURCE = [
    Record("t", 0, offset, b"g", b"value", (("t", b"%d" % offset), *((_ID,) if offset < 2 else ())), 7)
    for offset in range(4)
]
"""The first two are one message, sent twice."""


def _arrived(record: Record, offset: int) -> Record:
    step = b"b/%b/%d/%d" % (TOPIC_ID, record.partition, record.offset)
    ours = (("_RF_BRIDGE_DUPL_ID", step), ("_RF_BRIDGE_CONFIRMED", b"0"))
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
