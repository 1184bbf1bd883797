"""Finds TORN transactions: accepted in part. Their missing parts are not reported as LOST too."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.anomalies.finders.lost_inputs import unknown_where_deleted
from reconcile.anomalies.names import Anomaly, text
from reconcile.run.frames.evidence import FIRST, RECORD
from reconcile.spark.columns import constant
from reconcile.spark.schemas import PASSED

SHOWN_MAX: Final = 20  # part numbers that a row lists


def torn(evidence: DataFrame, rules: DataFrame, accepted_topics: Sequence[str]) -> DataFrame:
    """Return a row for each transaction accepted in part; GAP if evidence may be deleted."""
    parts = evidence.where(f"{FIRST} and part_number > 0 and came > 0 and came < parts")
    there = F.coalesce(F.col("fate").isin(*PASSED), F.lit(False))
    topics = constant(accepted_topics, "array<string>")
    by_record = parts.groupBy(*RECORD).agg(
        F.sort_array(F.collect_list(F.when(there, F.col("part_number")))).alias("found"),
        F.sort_array(F.collect_list(F.when(~there, F.col("part_number")))).alias("missing"),
        F.sort_array(F.collect_set(F.when(there, F.get(topics, F.col("out_address"))))).alias("found_in"),
        F.sort_array(F.collect_set(F.when(~there, F.get(topics, F.col("part_address"))))).alias("missing_in"),
    )
    envelopes = evidence.where(f"{FIRST} and part_number = 0 and came > 0 and came < parts")
    rows = envelopes.join(by_record, on=RECORD, how="inner").join(
        F.broadcast(rules), on="address", how="inner"
    )
    why = text(
        _numbers("found"), " of ", F.col("parts"), " accepted, in ", F.array_join("found_in", ", "),
        "; missing: ", _numbers("missing"), ", for ", F.array_join("missing_in", ", "),
    )  # fmt: skip
    return unknown_where_deleted(rows.withColumn("why", why), Anomaly.TORN)


def _numbers(name: str) -> Column:
    """Return text such as ``parts 1, 3``, with at most SHOWN_MAX numbers."""
    some = F.array_join(F.slice(name, 1, SHOWN_MAX).cast("array<string>"), ", ")
    more = F.size(name) - SHOWN_MAX
    several = F.when(F.size(name) == 1, "part ").otherwise("parts ")
    return text(several, some, F.when(more > 0, text(" and ", more, " more")).otherwise(""))
