"""IDs that occur several times, at least once in this run: originals and resends.

Most IDs occur once, so their rows need no shuffle. Digests of eight bytes stand for IDs; if two IDs have
equal digests, both remain.
"""

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SENT_MAX: Final = 1_000_000  # limit of digests to broadcast to all tasks; more are shuffled


class RepeatedIds(NamedTuple):
    """Digests of IDs that occur several times."""

    digests: DataFrame  # result of :func:`digests`
    number: int  # number of digests
    again: bool  # whether some ID may have been accepted several times


def digests(ids: DataFrame, others: DataFrame | None, run: int) -> DataFrame:
    """Return the ``digest`` of each repeated ID, and whether it was accepted ``again``.

    ``others``: evidence with an ID that was not accepted; None = no such evidence.
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


def among(rows: DataFrame, digests: DataFrame, count: int) -> DataFrame:
    """Return the ``rows`` (with id_address and id) with these digests; ``count`` is their number."""
    only = digests.select("digest")
    few = F.broadcast(only) if count <= SENT_MAX else only.hint("shuffle_hash")
    marked = rows.withColumn("digest", _digest("id_address"))
    return marked.join(few, on="digest", how="left_semi").drop("digest")


def _digest(address: str) -> Column:
    return F.xxhash64(address, "id").alias("digest")
