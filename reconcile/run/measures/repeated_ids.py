"""IDs that are there several times, once at least in this night: among these are all repeated ones, all originals, all resends.

Most IDs come once, and would be shuffled and sorted for nothing. They are told apart by digests of eight bytes; where two IDs have the
same, both are looked at.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SENT_MAX: Final = 1_000_000
"""So many digests are sent to all tasks; more are shuffled."""


class RepeatedIds(NamedTuple):
    """What there is of them."""

    digests: DataFrame
    """As :func:`digests` has them."""
    number: int
    """How many digests."""
    again: bool
    """Perhaps an ID was accepted several times."""


def digests(ids: DataFrame, others: DataFrame | None, night: int) -> DataFrame:
    """``digest`` of each, and whether one was accepted ``again``.

    Args:
        ids: :data:`reconcile.spark.schemas.IDS` of this night and those before.
        others: Of :data:`reconcile.spark.schemas.EVIDENCE` what has an ID and is not accepted; None = nothing.
        night: This one's number.
    """
    every = ids.select(
        _digest("id_address"), (F.col("night") == night).alias("new"), F.lit(True).alias("accepted")
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
    """Those that there are.

    Args:
        found: As :func:`digests` makes them.
        kept: Keeps a frame by a name, and reads it from there.
        many: There are so many records that it is not looked for twice; of few it is only kept if there are any.
    """
    if many:
        found = kept("recurring", found)
    [(number, again)] = found.agg(F.count(F.lit(1)), F.count_if("again")).collect()
    if number and not many:
        found = kept("recurring", found)
    return RepeatedIds(found, number, again > 0)


def among(rows: DataFrame, digests: DataFrame, count: int) -> DataFrame:
    """Only the rows of these IDs.

    Args:
        rows: id_address, id, and more.
        digests: As :func:`digests` has them.
        count: How many.
    """
    only = digests.select("digest")
    few = F.broadcast(only) if count <= SENT_MAX else only.hint("shuffle_hash")
    marked = rows.withColumn("digest", _digest("id_address"))
    return marked.join(few, on="digest", how="left_semi").drop("digest")


def _digest(address: str) -> Column:
    """Of an ID and the address whose it is."""
    return F.xxhash64(address, "id").alias("digest")
