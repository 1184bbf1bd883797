"""FORGOTTEN: a ring gave one sequence number to two IDs, so it did not know one of them when it judged the other."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from reconcile.anomalies.names import Anomaly, rows
from reconcile.run.frames.journal import emptied_before


def given_twice(ids: DataFrame, events: DataFrame | None) -> DataFrame:
    """IDs whose sequence number another ID of the ring has too, without the first of each.

    A ring that was opened in memory only begins its numbers again. ``events``: :data:`reconcile.spark.schemas.EVENTS`; None = no events.
    """
    numbered = emptied_before(ids.where("sequence is not null"), events)
    same = Window.partitionBy("address", "lane", "emptied", "sequence").orderBy(
        "partition", "offset", "part_number"
    )
    place = F.struct("partition", "offset")
    found = numbered.withColumns({"nth": F.row_number().over(same), "first": F.first(place).over(same)})
    return rows(
        found.where("nth > 1"),
        Anomaly.FORGOTTEN,
        F.concat(
            F.lit("its lane gave the sequence number "), F.col("sequence").cast("string"),
            F.lit(" to another ID too: its ring did not know one of them when it judged the other"),
        ),
        other_partition=F.col("first.partition"),
        other_offset=F.col("first.offset"),
    )  # fmt: skip
