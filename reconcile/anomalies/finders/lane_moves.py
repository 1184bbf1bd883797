"""IDs that two lanes judged, of which the second lane may know those of the first.

An address that gets more lanes hands the IDs of a lane to all lanes whose number is its own modulo the former
count. So IDs of both lanes, and of lanes in between, lie between the two.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_RING = ["address", "lane"]
_BETWEEN = "array_except(lanes, array(a_lane, lane))"


def with_lanes(pairs: DataFrame, grown: DataFrame | None) -> DataFrame:
    """The pairs, with all ``lanes`` through which the first ID can have come to the second lane, both included.

    ``grown`` are :data:`reconcile.spark.schemas.EVENTS` of more lanes, with the former count as ``before``.
    """
    ends = F.array("a_lane", "lane")
    if grown is None:
        return pairs.withColumn("lanes", F.array_distinct(ends))
    counts = grown.groupBy("address").agg(F.collect_set(F.col("before").cast("int")).alias("counts"))
    former = F.transform("counts", lambda count: F.col("lane") % count)
    heirs = F.filter(former, lambda lane: F.exists("counts", lambda count: lane % count == F.col("a_lane")))
    known = pairs.join(F.broadcast(counts), on="address", how="left")
    return known.withColumn(
        "lanes", F.array_distinct(F.concat(ends, F.coalesce(heirs, F.expr("cast(array() as array<int>)"))))
    ).drop("counts")


def with_passed(pairs: DataFrame, ids: DataFrame) -> DataFrame:
    """The pairs of :func:`with_lanes`, with ``passed``: the number of IDs of lanes between the two."""
    paths = pairs.select(*_RING, "a_lane", F.explode(F.expr(_BETWEEN)).alias("by")).distinct()
    between = F.broadcast(paths.select("address", F.col("by").alias("lane")).distinct())
    counted = (
        ids.join(between, on=_RING, how="left_semi").groupBy(*_RING).agg(F.count(F.lit(1)).alias("number"))
    )
    by = counted.withColumnRenamed("lane", "by")
    passed = (
        paths.join(by, on=["address", "by"], how="inner")
        .groupBy(*_RING, "a_lane")
        .agg(F.sum("number").alias("passed"))
    )
    found = pairs.join(F.broadcast(passed), on=[*_RING, "a_lane"], how="left")
    return found.withColumn("passed", F.coalesce("passed", F.lit(0)))
