"""Counts the IDs that a lane accepted before each record, without a sort: one bit for each offset.

In a lane with one input, offsets give the order. The count before a record is the sum over all lower blocks
of 64 offsets, and of the lower bits in its own block. Blocks are few enough to broadcast to all tasks. Lanes
with two inputs, and records with parts, are sorted instead
(:func:`reconcile.run.measures.resend_distance.placed`).
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconcile.run.frames.evidence import ONCE
from reconcile.spark.schemas import ACCEPTED

SENT_MAX: Final = 1_000_000  # limit of numbers to broadcast to all tasks; larger frames are sorted
_NUMBER: Final = ["address", "partition", "block"]
_OF_NUMBER: Final = ["bits", "below"]
_BIT: Final = "shiftleft(1L, cast(offset & 63 as int))"
_LOWER: Final = "~shiftleft(-1L, cast(offset & 63 as int))"


def blocks(evidence: DataFrame) -> DataFrame:
    """Return address, partition, block, bits (accepted IDs of 64 offsets) and below (IDs in lower blocks).

    Only evidence that its own partition judged counts, without envelopes. Blocks without such evidence have
    no row.
    """
    counts = (F.col("whole") == ACCEPTED) & F.col("id").isNotNull()
    found = (
        evidence.where(F.expr(ONCE) & F.col("forward_offset").isNull())
        .select("address", "partition", _block(), F.when(counts, F.expr(_BIT)).otherwise(0).alias("bit"))
        .groupBy(*_NUMBER)
        .agg(F.bit_or("bit").alias("bits"))
    )
    lower = (
        Window.partitionBy("address", "partition").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    )
    below = F.coalesce(F.sum(F.bit_count("bits").cast("bigint")).over(lower), F.lit(0))
    return found.withColumn("below", below)


def with_before(rows: DataFrame, blocks: DataFrame) -> DataFrame:
    """Add ``before``: IDs accepted at lower offsets of the partition; null = the block is absent."""
    lower = F.bit_count(F.col("bits").bitwiseAND(F.expr(_LOWER)))
    joined = rows.withColumn("block", _block()).join(F.broadcast(blocks), on=_NUMBER, how="left")
    return joined.withColumn("before", F.col("below") + lower).drop("block", *_OF_NUMBER)


def _block() -> Column:
    return F.shiftright("offset", 6).alias("block")
