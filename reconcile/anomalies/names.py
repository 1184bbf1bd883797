"""Names of anomalies in the order of the report, and the schema of their rows."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.spark.columns import of_schema
from reconcile.spark.schemas import ANOMALIES


class Anomaly(StrEnum):
    """Kind of an anomaly."""

    LOST = "LOST"  # an input is neither accepted, a duplicate nor in quarantine
    DOUBLED = "DOUBLED"  # one input is accepted twice, or is accepted and has another fate too
    PHANTOM = "PHANTOM"  # an accepted message names no existing input
    REORDERED = "REORDERED"
    """Accepted messages of a group are not in the order in which they arrived in one input partition."""
    FORGOTTEN = "FORGOTTEN"  # a lane accepted two inputs with one ID within the ring's promise
    OVERRUN = "OVERRUN"  # the same beyond the ring's promise, which is allowed
    CROSS_LANE = "CROSS-LANE"  # two lanes accepted inputs with one ID
    WRONG_VERDICT = "WRONG-VERDICT"  # an input was judged a duplicate, but has no original
    CORRUPTED = "CORRUPTED"  # key, value, user headers or timestamp differ between input and output
    TORN = "TORN"  # a transaction was accepted in part
    GAP = "GAP"  # retention has deleted the evidence, so the result is unknown


def text(*parts: str | Column) -> Column:
    """Return a text of constants and of columns; null if a column is null."""
    return F.concat(*(F.lit(part) if isinstance(part, str) else part.cast("string") for part in parts))


def rows(found: DataFrame, anomaly: Anomaly, detail: Column, /, **columns: Column) -> DataFrame:
    """Return rows of an anomaly in its schema. Columns of ``found`` that the schema names are kept."""
    there = set(found.columns)
    if "part_number" in there:
        number = F.col("part_number")
        detail = text(F.when(number > 0, text("part ", number, ": ")).otherwise(""), detail)
    special = {"anomaly": F.lit(anomaly.value), "detail": detail, **columns}
    return found.select(*of_schema(ANOMALIES, special, there))


class Doubt(NamedTuple):
    """Reason why evidence cannot prove some anomalies of an address, given by its number."""

    address: int
    anomalies: frozenset[Anomaly]
    why: str


def doubted(found: DataFrame, doubts: Sequence[Doubt]) -> DataFrame:
    """Return the rows, with anomalies under doubt renamed to GAP."""
    if not doubts:
        return found
    why = F.coalesce(
        *(
            F.when(
                (F.col("address") == doubt.address) & F.col("anomaly").isin(sorted(doubt.anomalies)),
                doubt.why,
            )
            for doubt in doubts
        )
    )
    sure = F.col("why").isNull()
    maybe = text(F.col("anomaly"), " or not, ", F.col("why"), ": ", F.col("detail"))
    return (
        found.withColumn("why", why)
        .withColumns(
            {
                "suspected": F.when(sure, F.col("suspected")).otherwise(F.col("anomaly")),
                "detail": F.when(sure, F.col("detail")).otherwise(maybe),
                "anomaly": F.when(sure, F.col("anomaly")).otherwise(Anomaly.GAP.value),
            }
        )
        .drop("why")
    )
