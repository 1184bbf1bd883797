"""The names of anomalies, in the order of a report, and the row of one."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.spark.schemas import ANOMALIES


class Anomaly(StrEnum):
    """The table of the design."""

    LOST = "LOST"
    """An input neither accepted, duplicate nor quarantined."""
    DOUBLED = "DOUBLED"
    """One input accepted twice, or of several fates."""
    PHANTOM = "PHANTOM"
    """Accepted without such an input."""
    REORDERED = "REORDERED"
    """A group's accepted messages not in their order of arrival in one input partition."""
    FORGOTTEN = "FORGOTTEN"
    """Two inputs of one ID accepted in one lane within the ring's promise."""
    OVERRUN = "OVERRUN"
    """The same beyond the promise: allowed."""
    CROSS_LANE = "CROSS-LANE"
    """Two inputs of one ID accepted in two lanes."""
    WRONG_VERDICT = "WRONG-VERDICT"
    """Called duplicate, and no original exists."""
    CORRUPTED = "CORRUPTED"
    """Key, value, user headers or timestamp changed on the way."""
    TORN = "TORN"
    """A transaction accepted in part."""
    GAP = "GAP"
    """Evidence already deleted by retention: unknown."""


def rows(found: DataFrame, anomaly: Anomaly, detail: Column, /, **columns: Column) -> DataFrame:
    """The rows of an anomaly; columns that ``found`` has by the schema's names are taken as they are."""
    there = set(found.columns)
    if "part_number" in there:
        part = F.concat(F.lit("part "), F.col("part_number").cast("string"), F.lit(": "))
        detail = F.concat(F.when(F.col("part_number") > 0, part).otherwise(F.lit("")), detail)
    special = {"anomaly": F.lit(anomaly.value), "detail": detail, **columns}
    return found.select(
        *(
            special.get(anomaly.name, F.col(anomaly.name) if anomaly.name in there else F.lit(None))
            .cast(anomaly.dataType)
            .alias(anomaly.name)
            for anomaly in ANOMALIES
        )
    )


class Doubt(NamedTuple):
    """Anomalies of an address, by its number, that cannot be told from what is none."""

    address: int
    anomalies: frozenset[Anomaly]
    why: str


def doubted(found: DataFrame, doubts: Sequence[Doubt]) -> DataFrame:
    """The rows; GAP where there is a doubt."""
    if not doubts:
        return found
    why = F.coalesce(
        *(
            F.when(
                (F.col("address") == doubt.address) & F.col("anomaly").isin(sorted(doubt.anomalies)),
                F.lit(doubt.why),
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
                "anomaly": F.when(sure, F.col("anomaly")).otherwise(F.lit(Anomaly.GAP.value)),
            }
        )
        .drop("why")
    )
