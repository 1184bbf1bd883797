"""What is counted of anomalies, and the verdict on them: on small frames, without Kafka."""

from pyspark.sql import DataFrame

from reconcile.anomalies.names import Anomaly
from reconcile.run.measures.counts import Judgement, count_anomalies
from reconcile.run.verdict.summary import address_counts, verdict
from tests.reconcile.rows import Frames


def _judged(found: DataFrame) -> Judgement:
    judgement = Judgement(counts={name: {"unmatched": 3} for name in ("a", "b")})
    count_anomalies(found, judgement)
    return judgement


def test_what_may_be_lost_is_a_gap(frames: Frames) -> None:
    """It is neither a duplicate nor an anomaly: nobody knows."""
    gap = {"anomaly": Anomaly.GAP.value, "address": "a"}
    found = _judged(frames.anomalies(gap, gap | {"suspected": Anomaly.LOST.value}))

    assert (found.anomalies, found.unknown) == ({"a": {"GAP": 2}, "b": {}}, {"a": 1, "b": 0})
    assert verdict(found.anomalies) == "gap"
    counts = address_counts(
        found.counts["a"], found.anomalies["a"], {}, divert=False, unknown=found.unknown["a"]
    )
    assert counts["duplicates"] == 2


def test_what_is_wrong_beside_a_gap(frames: Frames) -> None:
    rows = [
        {"anomaly": Anomaly.GAP.value, "address": "a", "suspected": Anomaly.LOST.value},
        {"anomaly": Anomaly.LOST.value, "address": "b"},
    ]

    assert verdict(_judged(frames.anomalies(*rows)).anomalies) == "anomalies"
