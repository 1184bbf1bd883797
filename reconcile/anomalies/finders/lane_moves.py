"""Pairs of equal IDs in two lanes, if the second lane may know the IDs of the first.

If an address gets more lanes, each lane copies its IDs to all lanes with its own number modulo the former
count. IDs of both lanes, and of lanes in between, may therefore lie between the two IDs of a pair.

If the lanes of an address are regrouped, each new ring starts with the newest IDs of several former rings.
IDs of those other rings then lie between the two, unless an earlier run or an output partition shows that
they were accepted before the first.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from reconcile.run.history.rings import Rings
from reconcile.spark.columns import small
from reconcile.spark.schemas import INT, schema

_RING = ["address", "lane"]
_FIRST: Final = ["address", "a_run", "a_out_address", "a_out_partition", "a_out_offset"]
_PATHS: Final = schema(address=INT, a_lane=INT, lane=INT, path=ArrayType(INT), merged=ArrayType(INT))
"""Columns: first ring, second ring with its IDs, rings on the path, other rings merged into the second."""
_BETWEEN = "array_except(lanes, array(a_lane, lane))"


def with_lanes(pairs: DataFrame, grown: DataFrame | None, rings: Sequence[Rings] = ()) -> DataFrame:
    """Return the pairs of IDs with all ``lanes`` from the first ID's lane to the second's.

    ``grown`` are the events that added lanes, with the former count as ``before``. New columns:
    ``regrouped``: lanes were regrouped between the two; ``merged``: other rings whose IDs the second lane
    got; ``strangers``: the groups differ and neither ring ever had IDs of the other, because a later ring
    merged both.
    """
    found = _grown(pairs, grown)
    paths = [row for number, item in enumerate(rings) for row in _paths(number, item)]
    if not paths:
        nothing = F.lit(None).cast(ArrayType(INT))
        return found.withColumns({"regrouped": F.lit(False), "merged": nothing, "strangers": F.lit(False)})
    there = F.broadcast(small(pairs.sparkSession, paths, _PATHS))
    changed = F.col("address").isin([number for number, item in enumerate(rings) if item.regroups])
    apart = (F.col("lane") != F.col("a_lane")) & (F.col("home_digest") != F.col("a_home_digest"))
    return (
        found.join(there, on=["address", "a_lane", "lane"], how="left")
        .withColumns({"lanes": F.coalesce("path", "lanes"), "regrouped": F.col("path").isNotNull()})
        .withColumn("strangers", changed & apart & ~F.col("regrouped"))
        .drop("path")
    )


def _paths(address: int, rings: Rings) -> list[tuple[int, int, int, list[int], list[int]]]:
    """Return rows of :data:`_PATHS` for one address."""
    found = []
    for ring, ancestors in rings.ancestors.items():
        for first in ancestors:
            path = [first, *sorted(r for r in ancestors if first in rings.ancestors[r]), ring]
            since = max(start for start in rings.starts if start <= first)
            merged = sorted(r for r in ancestors if r >= since and r != first)
            found.append((address, first, ring, path, merged))
    return found


def _grown(pairs: DataFrame, grown: DataFrame | None) -> DataFrame:
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


def with_passed(pairs: DataFrame, ids: DataFrame, *, regrouped: bool = False) -> DataFrame:
    """Add ``passed`` to the pairs of :func:`with_lanes`: IDs in lanes between the two, or in merged lanes."""
    paths = (
        pairs.where("not regrouped")
        .select(*_RING, "a_lane", F.explode(F.expr(_BETWEEN)).alias("by"))
        .distinct()
    )
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
    counted_ones = found.withColumn("passed", F.coalesce("passed", F.lit(0)))
    return _with_merged(counted_ones, ids) if regrouped else counted_ones


def _with_merged(pairs: DataFrame, ids: DataFrame) -> DataFrame:
    """Add to ``passed`` the IDs of merged lanes that may be younger than the first ID of the pair."""
    moments = pairs.select(*_FIRST, "merged", F.explode("merged").alias("by")).distinct()
    others = F.broadcast(moments.select("address", F.col("by").alias("lane")).distinct())
    there = ids.join(others, on=_RING, how="left_semi").select(
        "address", F.col("lane").alias("by"), "run", "out_address", "out_partition", "out_offset"
    )
    same_output = (F.col("out_address") == F.col("a_out_address")) & (
        F.col("out_partition") == F.col("a_out_partition")
    )
    older = (F.col("run") < F.col("a_run")) | (same_output & (F.col("out_offset") < F.col("a_out_offset")))
    counted = (
        moments.join(there, on=["address", "by"], how="inner")
        .where(~F.coalesce(older, F.lit(False)))
        .groupBy(*_FIRST, "merged")
        .agg(F.count(F.lit(1)).alias("more"))
    )
    both = pairs.join(F.broadcast(counted), on=[*_FIRST, "merged"], how="left")
    return both.withColumn("passed", F.col("passed") + F.coalesce("more", F.lit(0))).drop("more")
