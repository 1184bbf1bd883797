"""Names of anomalies, in the order of a report, and the rows of an anomaly."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.spark.columns import of_schema
from reconcile.spark.schemas import ANOMALIES


class Anomaly(StrEnum):
    """An anomaly of a run."""

    LOST = "LOST"  # an input neither accepted, duplicate nor quarantined
    DOUBLED = "DOUBLED"  # one input accepted twice, or of several fates
    PHANTOM = "PHANTOM"  # accepted without such an input
    REORDERED = "REORDERED"
    """A group's accepted messages not in their order of arrival in one input partition."""
    FORGOTTEN = "FORGOTTEN"  # two inputs of one ID accepted in one lane within the ring's promise
    OVERRUN = "OVERRUN"  # the same beyond the promise: allowed
    CROSS_LANE = "CROSS-LANE"  # two inputs of one ID accepted in two lanes
    WRONG_VERDICT = "WRONG-VERDICT"  # called duplicate, and no original exists
    CORRUPTED = "CORRUPTED"  # key, value, user headers or timestamp changed on the way
    TORN = "TORN"  # a transaction accepted in part
    GAP = "GAP"  # evidence already deleted by retention: unknown


def rows(found: DataFrame, anomaly: Anomaly, detail: Column, /, **columns: Column) -> DataFrame:
    """Return the rows of an anomaly. Columns of ``found`` with the schema's names stay as they are."""
    there = set(found.columns)
    if "part_number" in there:
        part = F.concat(F.lit("part "), F.col("part_number").cast("string"), F.lit(": "))
        detail = F.concat(F.when(F.col("part_number") > 0, part).otherwise(""), detail)
    special = {"anomaly": F.lit(anomaly.value), "detail": detail, **columns}
    return found.select(*of_schema(ANOMALIES, special, there))


class Doubt(NamedTuple):
    """Anomalies of an address, by its number, that evidence cannot prove, and why."""

    address: int
    anomalies: frozenset[Anomaly]
    why: str


def doubted(found: DataFrame, doubts: Sequence[Doubt]) -> DataFrame:
    """Return the rows, as GAP where there is a doubt."""
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
    maybe = F.concat(F.col("anomaly"), F.lit(" or not, "), F.col("why"), F.lit(": "), F.col("detail"))
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
