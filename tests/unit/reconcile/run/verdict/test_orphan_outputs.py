"""Which outputs are looked at again for their names: those that this very run has read."""

from types import SimpleNamespace
from typing import Any

from pyspark.sql import Row

from reconcile.run.history.cut import AddressCut, Span, TopicCut
from reconcile.run.verdict.orphan_outputs import of_this_run
from reconcile.spark.schemas import ACCEPTED, DIVERTED


def _cut(*, recreated: bool = False) -> AddressCut:
    topic = TopicCut("t", "id", [Span(0, 10, 12, 20, 20)], recreated=recreated)
    return AddressCut(topic, topic, topic, topic, None, (0,))


def _row(fate: int, address: int, partition: int, first: int, end: int) -> Row:
    return Row(fate=fate, out_address=address, out_partition=partition, first=first, end=end)


def test_what_is_read_again() -> None:
    """Only offsets of this run, in existing and configured topics, are read again."""
    addresses = [SimpleNamespace(name=name) for name in ("a", "recreated")]
    frames: Any = SimpleNamespace(addresses=addresses, cuts={"a": _cut(), "recreated": _cut(recreated=True)})

    assert of_this_run(frames, [_row(ACCEPTED, 0, 0, 3, 15)]) == {(ACCEPTED, 0): {0: (12, 15)}}
    assert of_this_run(frames, [_row(ACCEPTED, 0, 0, 14, 99)]) == {(ACCEPTED, 0): {0: (14, 20)}}
    for other in (
        (ACCEPTED, 0, 0, 3, 12),
        (ACCEPTED, 0, 1, 13, 14),
        (DIVERTED, 0, 0, 13, 14),
        (ACCEPTED, 1, 0, 13, 14),
    ):
        assert of_this_run(frames, [_row(*other)]) == {}
