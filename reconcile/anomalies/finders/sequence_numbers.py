"""Sequence numbers of IDs: finds numbers given twice (FORGOTTEN), and the last number before an input."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from reconcile.anomalies.finders.ring_ranks import routed
from reconcile.anomalies.names import Anomaly, rows, text
from reconcile.run.frames.journal import emptied_before

_RING: Final = ["address", "lane", "emptied"]


def given_twice(ids: DataFrame, events: DataFrame | None) -> DataFrame:
    """Return IDs whose sequence number another ID of the ring has too, without the first of each number.

    A ring that was opened in memory only starts its numbers again. ``events``:
    :data:`reconcile.spark.schemas.EVENTS`, or None.
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
        text(
            "its lane gave the sequence number ",
            F.col("sequence"),
            " to another ID too: its ring did not know one of them when it judged the other",
        ),
        other_partition=F.col("first.partition"),
        other_offset=F.col("first.offset"),
    )


def with_heads(candidates: DataFrame, ids: DataFrame, events: DataFrame | None, run: int) -> DataFrame:
    """Add ``head``: the highest number that the ring certainly gave before the candidate, or null.

    Numbers rise along each input of a lane, in each output partition, and from run to run. If they fall
    anywhere in a ring, the ring started its numbers again, and they prove nothing.
    """
    numbered = emptied_before(routed(ids.where("sequence is not null")), events).drop("events")
    new, earlier = numbered.where(F.col("run") == run), numbered.where(F.col("run") < run)
    in_output = Window.partitionBy(*_RING, "out_address", "out_partition").orderBy(
        "out_offset", "part_number"
    )
    last = F.max("sequence").over(in_output.rowsBetween(Window.unboundedPreceding, -1))
    given = new.select(
        *_RING, "route", "at", F.col("part_number").alias("nth_part"), F.col("sequence").alias("given"),
        (F.col("sequence") < last).alias("falls"),
    )  # fmt: skip
    asking = emptied_before(routed(candidates), events).drop("events").withColumn("asks", F.lit(True))
    both = asking.unionByName(given.withColumn("asks", F.lit(False)), allowMissingColumns=True)
    along = Window.partitionBy(*_RING, "route").orderBy("at", F.desc("asks"), "nth_part")
    before = F.max("given").over(along.rowsBetween(Window.unboundedPreceding, -1))
    placed = both.withColumn("last", before)
    known = placed.where("not asks").groupBy(*_RING).agg(
        F.min("given").alias("low"), F.max(F.col("falls") | (F.col("given") <= F.col("last"))).alias("falls")
    )  # fmt: skip
    ended = earlier.groupBy(*_RING).agg(F.max("sequence").alias("ended"))
    sound = known.join(ended, on=_RING, how="left").where(
        "not coalesce(falls, false) and low > coalesce(ended, -1)"
    )
    found = placed.where("asks").join(F.broadcast(sound.select(*_RING, "ended", "low")), on=_RING, how="left")
    head = F.when(F.col("low").isNotNull(), F.greatest("last", "ended"))
    return found.select(*candidates.columns, head.alias("head"))
