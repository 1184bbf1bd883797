"""What the source's own records say of what crossed a bridge: planted histories."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.harness.checker.findings import Anomaly
from tests.harness.history import History, Record
from tests.harness.source_cluster import crossed

TOPIC_ID = b"A" * 22
_ID = ("_AMQ_DUPL_ID", b"id")
SOURCE = [
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
    inputs = [_arrived(SOURCE[number], offset) for offset, number in enumerate(arrived)]
    return History(
        "t", 2, 10, lambda _: 1, inputs=inputs,
        accepted=[_accepted(inputs[number], offset) for offset, number in enumerate(accepted)],
    )  # fmt: skip


def _found(history: History, *, ids_ignored: bool = False) -> list[Anomaly]:
    return [finding.anomaly for finding in crossed(SOURCE, history, ids_ignored=ids_ignored)]


def test_nothing_is_wrong() -> None:
    """What was sent twice is accepted once, and so is what a bridge brought twice."""
    assert _found(_history()) == []


def test_ids_ignored() -> None:
    """Then what was sent twice is two messages."""
    assert _found(_history(), ids_ignored=True) == [Anomaly.LOST]
    assert _found(_history(accepted=(0, 1, 3, 4)), ids_ignored=True) == []


@pytest.mark.parametrize(
    ("history", "found"),
    [
        (_history(arrived=(0, 1, 2), accepted=(0, 2)), [Anomaly.LOST, Anomaly.LOST]),
        (_history(accepted=(0, 3)), [Anomaly.LOST]),
        (_history(accepted=(0, 1, 3, 4)), [Anomaly.DOUBLED]),
        (_history(arrived=(0, 1, 3, 2), accepted=(0, 2, 3)), [Anomaly.REORDERED]),
    ],
)
def test_lost_doubled_reordered(history: History, found: list[Anomaly]) -> None:
    """Each by its name; what never arrived was not accepted either."""
    assert _found(history) == found


@pytest.mark.parametrize("change", [{"key": b"h"}, {"value": None}, {"timestamp": 8}])
def test_corrupted(change: dict[str, Any]) -> None:
    history = _history()
    changed = [history.inputs[0]._replace(**change), *history.inputs[1:]]

    assert Anomaly.CORRUPTED in _found(replace(history, inputs=changed))


def test_phantom() -> None:
    """A hop that names nothing, and a record without one."""
    history = _history()
    beyond = _arrived(SOURCE[0]._replace(offset=9), 5)
    own = SOURCE[0]._replace(partition=1, offset=6)

    assert _found(replace(history, inputs=[*history.inputs, beyond, own])) == [Anomaly.PHANTOM] * 2
