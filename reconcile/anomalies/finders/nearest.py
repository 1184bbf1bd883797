"""The originals that an input can be a duplicate of, without a look at each of its ID.

One ID may be there a million times, and be accepted anew whenever it is older than ``id_max_age``.
Of those that came by the same way the nearest before it tells, which a window finds. Of those that came by another way, or that another
lane has accepted, the youngest tells, of which there is one for each lane, way and partition. Few remain that neither tells.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconcile.run.frames.evidence import PLACE

SAME: Final = ["address", "part_address", "id", "named"]
"""What an input and its original have in common; ``named``: the place that a diverted duplicate names, else null."""
_CLASS: Final = [*SAME, "key", "lane", "way", "emptied", "partition", "before", "heirs"]


def with_nearest(candidates: DataFrame, originals: DataFrame) -> DataFrame:
    """The candidates, with ``first``: where the nearest original by the same way stands that is young enough; null = there is none.

    A younger one may stand before one that is too old. Then ``first`` is where the youngest stands, and it is ``ambiguous``: there may
    be another between.

    Args:
        candidates: Of :data:`SAME`, lane, way, emptied (how often the ring was before), at (place in its way), timestamp, max_age_ms,
            on (the ring was not off), and more.
        originals: The same but for the last two, and ``before``: whether a night before has accepted it.
    """
    of_way = originals.select(
        *SAME, "lane", "way", "emptied", "at", "timestamp", F.col("before").alias("earlier")
    )
    of_way = of_way.withColumn("original", F.lit(True))
    those = candidates.withColumns({"earlier": F.lit(False), "original": F.lit(False)})
    # What a night before has accepted came before, also where the forward topic was created again; what stands at the same place did not.
    order = Window.partitionBy(*SAME, "lane", "way", "emptied").orderBy(F.desc("earlier"), "at", "original")
    until = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    both = those.unionByName(of_way, allowMissingColumns=True).withColumns(
        {
            "last": F.max(F.when(F.col("original"), F.struct("at", "timestamp"))).over(until),
            "youngest": F.max(F.when(F.col("original"), F.struct("timestamp", "at"))).over(until),
        }
    )
    last, any_one = (_young("timestamp", f"{name}.timestamp") & F.col("on") for name in ("last", "youngest"))
    return (
        both.where(~F.col("original"))
        .withColumns(
            {
                "first": F.when(last, F.col("last.at")).when(any_one, F.col("youngest.at")),
                "ambiguous": F.coalesce(any_one & ~last, F.lit(False)),
            }
        )
        .drop("last", "youngest", "earlier", "original")
    )


def by_other_ways(candidates: DataFrame, originals: DataFrame) -> DataFrame:
    """Those of the candidates that may have an original that came by another way, or that another lane has accepted.

    Returns:
        :data:`reconcile.run.frames.evidence.PLACE`, and ``certain``; where that is false the two came from one partition, in an order that
        the youngest does not tell.
    """
    c, o = candidates.withColumn("key", _keys(F.lit(0))).alias("c"), classes(originals).alias("o")
    same = [F.col(f"c.{name}").eqNullSafe(F.col(f"o.{name}")) for name in (*SAME, "key")]
    lane, kind = F.col("c.lane") == F.col("o.lane"), F.col("c.key.kind")
    in_lane = lane & (F.col("c.way") != F.col("o.way")) & (F.col("c.emptied") == F.col("o.emptied"))
    handed_on = ~lane & (F.col("c.lane") % F.col("o.heirs") == F.col("o.lane"))
    home = F.when(kind == "lane", in_lane).when(kind == "heirs", handed_on).otherwise(~lane)
    apart = F.col("o.before") | (F.col("c.partition") != F.col("o.partition"))
    on = (
        home
        & _young("c.timestamp", "o.timestamp")
        & F.col("c.on")
        & (apart | (F.col("c.offset") > F.col("o.offset")))
    )
    for column in same:
        on = column & on
    return (
        c.join(o, on=on, how="inner")
        .groupBy(*(F.col(f"c.{name}").alias(name) for name in PLACE))
        .agg(F.max(apart).alias("certain"))
    )


def classes(originals: DataFrame) -> DataFrame:
    """Of the originals that are alike to any candidate but for age and order: the highest timestamp, and the lowest offset."""
    offered = originals.withColumn("key", _keys(F.when(F.col("heirs").isNotNull(), F.lit(0))))
    handed_on = F.when(F.col("key.kind") == "heirs", F.col("heirs"))
    return (
        offered.withColumn("heirs", handed_on)
        .groupBy(*_CLASS)
        .agg(F.max("timestamp").alias("timestamp"), F.min("offset").alias("offset"))
    )


def _keys(heirs: Column) -> Column:
    """By what an original may be known to a lane, a row each: it is its own, it is the group's, it has handed on what it knew."""
    by = {"lane": F.col("lane").cast("bigint"), "home": F.col("home_digest"), "heirs": heirs.cast("bigint")}
    keys = F.array(*(F.struct(F.lit(kind).alias("kind"), column.alias("of")) for kind, column in by.items()))
    return F.explode(F.filter(keys, lambda key: key["of"].isNotNull()))


def _young(later: str, earlier: str) -> Column:
    young = (F.col("max_age_ms") == 0) | (F.col(later) - F.col(earlier) <= F.col("max_age_ms"))
    return F.coalesce(young & F.col(earlier).isNotNull(), F.lit(False))
