"""Finds DOUBLED, PHANTOM and CORRUPTED, which a single row of the evidence shows."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reconcile.anomalies.names import Anomaly, rows, text
from reconcile.spark.schemas import DIVERTED, FORWARDED, PASSED

_CHANGED: Final = {
    name: f"{name}_changed" for name in ("key", "value", "headers", "timestamp", "address", "parts")
}
# Conditions that select rows of the evidence for these finders.
SECOND: Final = "has_input and nth = 2"
STRAY: Final = f"not has_input and not waiting and fate != {FORWARDED}"
CHANGED: Final = " or ".join(_CHANGED.values())


def doubled(evidence: DataFrame) -> DataFrame:
    """Return a row for each input with a second output."""
    other = "a second output, which is not an accepted one"
    detail = F.when(F.col("fate").isin(*PASSED), "accepted again").otherwise(other)
    return rows(evidence.where(SECOND), Anomaly.DOUBLED, detail)


def doubled_later(evidence: DataFrame, spans: DataFrame) -> DataFrame:
    """Return outputs of inputs that an earlier run judged, and second outputs of deleted inputs."""
    strays = _without_input(evidence, spans).where(f"fate != {FORWARDED}")
    judged, second = (
        F.expr("offset >= origin and offset < begin"),
        F.expr("offset >= begin and offset < read_from and nth = 2"),
    )
    again = F.when(judged, "judged by an earlier run, and now there is an output again")
    detail = again.otherwise("two outputs name this input, which is deleted")
    return rows(strays.where(judged | second), Anomaly.DOUBLED, detail)


def phantom(evidence: DataFrame, spans: DataFrame) -> DataFrame:
    """Return accepted or diverted outputs whose named input does not exist."""
    strays = _without_input(evidence, spans).where(F.col("fate").isin(*PASSED, DIVERTED))
    stands_there = (F.col("offset") >= F.col("read_from")) & (F.col("offset") < F.col("cut"))
    why = (
        F.when(F.col("partition").isNull(), "names no input record in _RF_SOURCE")
        .when(F.col("cut").isNull(), "names a partition that the input does not have")
        .when(F.col("offset") >= F.col("end"), "names a place beyond the end of the input")
        .when(stands_there & (F.col("part_number") > 0), "there is no envelope with such a part")
        .when(
            stands_there & F.col("parts").isNotNull(),
            "there is an envelope, and this is none of its parts: _RF_TX_PART is missing",
        )
        .when(stands_there, "there is no committed input record")
        .when(F.col("offset") < 0, "names no place")
    )
    return rows(strays.withColumn("why", why).where("why is not null"), Anomaly.PHANTOM, F.col("why"))


def beyond_memory(evidence: DataFrame, spans: DataFrame) -> DataFrame:
    """Return GAP for outputs of inputs from before the first run, whose fate is unknown in later runs."""
    strays = _without_input(evidence, spans)
    return rows(
        strays.where("fate != 0 and offset < origin and begin > origin"),
        Anomaly.GAP,
        F.lit("an output of an input from before the first run"),
    )


def corrupted(evidence: DataFrame) -> DataFrame:
    """Return outputs that differ from their input."""
    what = F.concat_ws(", ", *(F.when(F.col(flag), name) for name, flag in _CHANGED.items()))
    return rows(evidence.where(CHANGED), Anomaly.CORRUPTED, text(what, " not as in the input"))


def _without_input(evidence: DataFrame, spans: DataFrame) -> DataFrame:
    strays = evidence.where(STRAY)
    return strays.join(F.broadcast(spans), on=["address", "partition"], how="left")
