"""Functions of a reconciliation run on small frames, without Kafka."""

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconcile.anomalies.finders import bridge_hops, fates, lost_inputs, order, originals
from reconcile.anomalies.names import Anomaly, Doubt, doubted
from reconcile.run.frames.evidence import WITHOUT_INPUT
from reconcile.run.measures import candidates
from reconcile.run.measures.counts import Judgement, count_anomalies
from reconcile.run.verdict.summary import address_counts, verdict
from reconcile.spark.columns import small
from reconcile.spark.schemas import ACCEPTED_SPANS, DIVERTED, FORWARDED
from reconcile.spark.topic_reader import concatenated
from tests.reconcile.rows import Frames, named


def test_fates(frames: Frames) -> None:
    """An input accepted again is DOUBLED once; a row that names nothing, too much, or a hole is PHANTOM; a row ahead is neither."""
    evidence = frames.evidence(
        {"offset": 20}, {"offset": 20, "nth": 2}, {"offset": 20, "nth": 3}, {"offset": 21, "value_changed": True},
        *({"offset": number, "has_input": False} for number in (5, 12, 25, 35, 45)),
        {"partition": None, "offset": None, "has_input": False},
    )  # fmt: skip
    spans = frames.spans()

    assert named(fates.doubled(evidence)) == [("DOUBLED", 20)]
    assert named(fates.doubled_later(evidence, spans)) == [("DOUBLED", 12)]
    assert named(fates.beyond_memory(evidence, spans)) == [("GAP", 5)]
    assert {row["offset"] for row in fates.phantom(evidence, spans).collect()} == {25, 45, None}
    assert named(fates.corrupted(evidence)) == [("CORRUPTED", 21)]


def test_what_is_looked_at(frames: Frames) -> None:
    """The run looks for an anomaly only if the frame has a row of its kind."""
    rows: dict[str, dict[str, Any]] = {
        fates.SECOND: {"nth": 2},
        fates.STRAY: {"has_input": False},
        fates.CHANGED: {"key_changed": True},
        bridge_hops.UNREAD: {"hop_source": ""},
        lost_inputs.UNMATCHED: {"fate": None, "id": None},
        lost_inputs.SAID_TO_REPEAT: {"fate": DIVERTED, "id": None},
        originals.REPEATING: {"fate": DIVERTED, "id": b"a"},
        WITHOUT_INPUT: {"has_input": False, "fate": FORWARDED},
    }
    also = {fates.STRAY: {WITHOUT_INPUT}, originals.REPEATING: {lost_inputs.SAID_TO_REPEAT}}
    for name, row in rows.items():
        [counted] = frames.evidence(row, {}).agg(*candidates.counted(), *candidates.sequences()).collect()
        found = candidates.of_row(counted)

        assert {name for name, number in found.items() if number} == {name, *also.get(name, ())}


def test_reordered_across_the_cut(frames: Frames, spark: SparkSession) -> None:
    """A break of order across two runs is found.

    The last run ended at input 20 and output 100, and had 19 accepted at 99, and 17 at 98 in a group of its own.
    """
    names = (F.xxhash64(F.lit(name)) for name in (b"g", b"h", b"j"))
    g, h, j = spark.range(1).select(*names).collect()[0]
    earlier = frames.ids(
        {"offset": 10, "out_offset": 90, "group_digest": g}, {"offset": 19, "out_offset": 99, "group_digest": g},
        {"offset": 17, "out_offset": 98, "group_digest": h},
        {"offset": 15, "out_offset": 94, "group_digest": j}, {"offset": 16, "out_offset": 92, "group_digest": j},
    )  # fmt: skip
    evidence = frames.evidence(
        {"offset": 21, "out_offset": 97}, {"offset": 22, "out_offset": 101},
        {"offset": 18, "out_offset": 102},  # waited
        {"offset": 18, "out_offset": 103, "group": b"h"}, {"offset": 23, "out_offset": 99, "group": b"i"},
        {"offset": 24, "out_offset": 99, "group": b"h"}, {"offset": 25, "out_offset": 93, "group": b"j"},
    )  # fmt: skip
    outputs = small(spark, [(0, 0, 100)], ACCEPTED_SPANS)
    found = order.reordered_across(evidence, earlier, frames.spans(), outputs)

    assert sorted((row["offset"], row["other_offset"], row["detail"]) for row in found.collect()) == [
        (18, 19, "accepted after offset 19 of its group, which the last run judged"),
        (21, 19, "accepted before offset 19 of its group, which the last run judged"),
        (25, 15, "accepted before offset 15 of its group, which the last run judged"),
    ]


def test_a_group_in_another_output_partition_than_in_the_last_run(
    frames: Frames, spark: SparkSession
) -> None:
    """A group that moved is named once for each new partition; one of another input partition, or without a group, may be anywhere."""
    g = spark.range(1).select(F.xxhash64(F.lit(b"g"))).collect()[0][0]
    earlier = frames.ids({"group_digest": g}, {"group_digest": g, "out_partition": 3}, {"group_digest": 42})
    moved = {"out_partition": 1}
    evidence = frames.evidence(
        {}, moved, moved, {**moved, "partition": 1}, {**moved, "group": None}, {**moved, "group": b"h"}, {"out_partition": 2}
    )  # fmt: skip
    found = order.scattered_across(evidence, earlier, small(spark, [(0, 0, 9), (0, 1, 9)], ACCEPTED_SPANS))

    assert [(row["offset"], row["out_partition"], row["detail"]) for row in found.collect()] == [
        (1, 1, "its group was in accepted partition 0, 3 in the last run")
    ]


def test_doubts(frames: Frames) -> None:
    """An uncertain finding becomes a GAP that names the suspected anomaly, for the doubted address and anomalies only."""
    evidence = frames.evidence({"nth": 2}, {"value_changed": True}, {"value_changed": True, "address": 1})
    found = doubted(
        concatenated([fates.doubled(evidence), fates.corrupted(evidence)]),
        [Doubt(0, frozenset({Anomaly.CORRUPTED, Anomaly.LOST}), "rules changed"), Doubt(2, frozenset(Anomaly), "x")],
    )  # fmt: skip

    assert sorted((row["anomaly"], row["suspected"], row["detail"]) for row in found.collect()) == [
        ("CORRUPTED", None, "value not as in the input"),
        ("DOUBLED", None, "accepted again"),
        ("GAP", "CORRUPTED", "CORRUPTED or not, rules changed: value not as in the input"),
    ]


def test_what_may_be_lost_is_a_gap(frames: Frames) -> None:
    """A possibly lost record is a GAP: it counts neither as a duplicate nor as lost, and beside it a lost one is an anomaly."""
    gap = {"anomaly": Anomaly.GAP.value, "address": "a"}
    doubtful = [gap, gap | {"suspected": Anomaly.LOST.value}]

    def judged(*rows: dict[str, Any]) -> dict[str, Any]:
        found = Judgement(counts={name: {"unmatched": 3} for name in ("a", "b")})
        count_anomalies(frames.anomalies(*rows), found)
        return {
            name: address_counts(found.counts[name], anomalies, {}, divert=False, unknown=found.unknown[name])
            for name, anomalies in found.anomalies.items()
        }

    counts = judged(*doubtful)
    assert (counts["a"]["anomalies"]["GAP"], counts["a"]["duplicates"], verdict(counts, 0.001)) == (
        2,
        2,
        "gap",
    )
    lost = {"anomaly": Anomaly.LOST.value, "address": "b"}
    assert verdict(judged(*doubtful, lost), 0.001) == "anomalies"
