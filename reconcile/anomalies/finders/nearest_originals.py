"""Finds the original of an input without comparing it with every record of its ID.

One ID may occur a million times, because it is accepted again whenever it is older than ``id_max_age``. On
the same route the nearest earlier original decides, and a window function finds it. On other routes, or in
other lanes, the youngest decides, and each lane, route and partition has one. Only a few inputs remain
undecided.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconcile.run.frames.evidence import PLACE

SAME: Final = ["address", "part_address", "id", "named"]
"""Columns that an input and its original share. ``named``: place in a diverted duplicate, else null."""
_CLASS: Final = [*SAME, "key", "lane", "route", "emptied", "partition", "before", "heirs"]


def with_nearest(candidates: DataFrame, originals: DataFrame) -> DataFrame:
    """Add ``first``: the place of the nearest young original on the same route, or null.

    ``first_sequence`` is its sequence number. The nearest original may be too old although an earlier one is
    young enough. Then ``first`` is the place of the youngest, and ``ambiguous`` is set, because another young
    original may lie between.

    Args:
        candidates: :data:`SAME`, lane, forwarded, emptied, at, timestamp, max_age_ms, on, largest, head, and
            more. ``emptied``: how often the ring was emptied before. ``at``: offset on its route. ``on``: the
            ring was not off. ``largest``: ring size. ``head``: see ring_ranks.
        originals: The same without the last four; also ``before`` (an earlier run accepted it) and sequence.
    """
    of_route = originals.select(
        *SAME, "lane", "route", "emptied", "at", "timestamp", "sequence", F.col("before").alias("earlier")
    )
    of_route = of_route.withColumn("original", F.lit(True))
    asking = candidates.withColumns({"earlier": F.lit(False), "original": F.lit(False)})
    # Originals of earlier runs sort first, even if the forward topic was created again. An original at the
    # same place sorts last.
    order = Window.partitionBy(*SAME, "lane", "route", "emptied").orderBy(F.desc("earlier"), "at", "original")
    until = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    both = asking.unionByName(of_route, allowMissingColumns=True).withColumns(
        {
            "last": F.max(F.when(F.col("original"), F.struct("at", "timestamp", "sequence"))).over(until),
            "youngest": F.max(F.when(F.col("original"), F.struct("timestamp", "at", "sequence"))).over(until),
        }
    )
    last, any_one = (_young("timestamp", f"{name}.timestamp") & F.col("on") for name in ("last", "youngest"))
    return (
        both.where(~F.col("original"))
        .withColumns(
            {
                "first": F.when(last, F.col("last.at")).when(any_one, F.col("youngest.at")),
                "first_sequence": F.when(last, F.col("last.sequence")).when(
                    any_one, F.col("youngest.sequence")
                ),
                "ambiguous": F.coalesce(any_one & ~last, F.lit(False)),
            }
        )
        .drop("last", "youngest", "earlier", "original")
    )


def by_other_routes(candidates: DataFrame, originals: DataFrame) -> DataFrame:
    """Return places of candidates that may have an original on another route or in another lane.

    Returns:
        :data:`reconcile.run.frames.evidence.PLACE` and ``certain``. It is False if both came from one
            partition and the youngest
        original does not show their order.
    """
    c, o = candidates.withColumn("key", _keys(F.lit(0))).alias("c"), classes(originals).alias("o")
    same = [F.col(f"c.{name}").eqNullSafe(F.col(f"o.{name}")) for name in (*SAME, "key")]
    lane, kind = F.col("c.lane") == F.col("o.lane"), F.col("c.key.kind")
    in_lane = lane & (F.col("c.route") != F.col("o.route")) & (F.col("c.emptied") == F.col("o.emptied"))
    in_lane &= ~overrun("c.", "o.sequence")
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
    """Merge originals that differ only in age and order: highest timestamp, lowest offset."""
    offered = originals.withColumn("key", _keys(F.when(F.col("heirs").isNotNull(), 0)))
    handed_on = F.when(F.col("key.kind") == "heirs", F.col("heirs"))
    return (
        offered.withColumn("heirs", handed_on)
        .groupBy(*_CLASS)
        .agg(
            F.max("timestamp").alias("timestamp"),
            F.min("offset").alias("offset"),
            F.max("sequence").alias("sequence"),
        )
    )


def overrun(candidate: str, sequence: str) -> Column:
    """Return whether sequence numbers prove that the ring overwrote an ID before the candidate came."""
    since = F.col(f"{candidate}head") - F.col(sequence)
    return F.coalesce(since >= F.col(f"{candidate}largest"), F.lit(False))


def _keys(heirs: Column) -> Column:
    """Explode reasons why a lane may know an original: own lane, home of the group, or successor lane."""
    by = {"lane": F.col("lane").cast("bigint"), "home": F.col("home_digest"), "heirs": heirs.cast("bigint")}
    keys = F.array(*(F.struct(F.lit(kind).alias("kind"), column.alias("of")) for kind, column in by.items()))
    return F.explode(F.filter(keys, lambda key: key["of"].isNotNull()))


def _young(later: str, earlier: str) -> Column:
    young = (F.col("max_age_ms") == 0) | (F.col(later) - F.col(earlier) <= F.col("max_age_ms"))
    return F.coalesce(young & F.col(earlier).isNotNull(), F.lit(False))
