"""Two of one ID that two lanes have judged: the second may know what the first knew.

An address that gets more lanes hands on what each knew to those whose number is its own modulo the former count. So between the two
lie IDs of both lanes, and of those by which the first's went to the second's.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_RING = ["address", "lane"]
_BETWEEN = "array_except(lanes, array(a_lane, lane))"


def with_lanes(pairs: DataFrame, grown: DataFrame | None) -> DataFrame:
    """The pairs, with all ``lanes`` that an ID of the first can have come through to the second, both of theirs included.

    Args:
        pairs: address, lane, a_lane, and more.
        grown: Of :data:`reconcile.spark.schemas.EVENTS` those that tell of more lanes; their ``before`` is how many there were.
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
    """The pairs, with ``passed``: how many IDs are of lanes between those of the two.

    Args:
        pairs: As :func:`with_lanes` has them.
        ids: :data:`reconcile.spark.schemas.IDS` of this night and those before.
    """
    way = pairs.select(*_RING, "a_lane", F.explode(F.expr(_BETWEEN)).alias("by")).distinct()
    those = F.broadcast(way.select("address", F.col("by").alias("lane")).distinct())
    counted = (
        ids.join(those, on=_RING, how="left_semi").groupBy(*_RING).agg(F.count(F.lit(1)).alias("number"))
    )
    by = counted.withColumnRenamed("lane", "by")
    passed = (
        way.join(by, on=["address", "by"], how="inner")
        .groupBy(*_RING, "a_lane")
        .agg(F.sum("number").alias("passed"))
    )
    found = pairs.join(F.broadcast(passed), on=[*_RING, "a_lane"], how="left")
    return found.withColumn("passed", F.coalesce("passed", F.lit(0)))
