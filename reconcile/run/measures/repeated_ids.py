"""IDs that occur several times, once at least in this run: among them are all repeated IDs, originals and resends.

Most IDs occur once, and need no shuffle. Digests of eight bytes tell IDs apart; of two IDs with equal digests
both remain.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SENT_MAX: Final = 1_000_000  # so many digests are sent to all tasks; more are shuffled


class RepeatedIds(NamedTuple):
    """Digests of repeated IDs."""

    digests: DataFrame  # as digests has them
    number: int  # how many digests
    again: bool  # perhaps an ID was accepted several times


def digests(ids: DataFrame, others: DataFrame | None, run: int) -> DataFrame:
    """``digest`` of each such ID, and whether it was accepted ``again``.

    ``others`` is evidence with an ID that was not accepted; None = there is none.
    """
    every = ids.select(
        _digest("id_address"), (F.col("run") == run).alias("new"), F.lit(True).alias("accepted")
    )
    if others is not None:
        every = every.unionByName(
            others.select(_digest("part_address"), F.lit(True).alias("new"), F.lit(False).alias("accepted"))
        )
    counted = every.groupBy("digest").agg(
        F.count(F.lit(1)).alias("times"),
        F.count_if("accepted").alias("accepted"),
        F.max(F.col("new").cast("int")).alias("new"),
    )
    return counted.where("times > 1 and new = 1").select("digest", (F.col("accepted") > 1).alias("again"))


def looked_for(found: DataFrame, kept: Callable[[str, DataFrame], DataFrame], *, many: bool) -> RepeatedIds:
    """Count the digests. Many records are not read twice; of few, digests are kept only if there are any.

    ``kept`` writes a frame by a name, and reads it again.
    """
    if many:
        found = kept("recurring", found)
    [(number, again)] = found.agg(F.count(F.lit(1)), F.count_if("again")).collect()
    if number and not many:
        found = kept("recurring", found)
    return RepeatedIds(found, number, again > 0)


def among(rows: DataFrame, digests: DataFrame, count: int) -> DataFrame:
    """Return the rows of these digests. ``rows``: id_address, id, and more; ``count``: the number of digests."""
    only = digests.select("digest")
    few = F.broadcast(only) if count <= SENT_MAX else only.hint("shuffle_hash")
    marked = rows.withColumn("digest", _digest("id_address"))
    return marked.join(few, on="digest", how="left_semi").drop("digest")


def _digest(address: str) -> Column:
    return F.xxhash64(address, "id").alias("digest")
