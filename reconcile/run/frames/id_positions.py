"""How many IDs a lane had accepted before each of its records, without sorting them: a bit for each offset, 64 of them a number.

Of a lane with one input, offsets are its order. So what came before a record is what all numbers below its own hold, and of its own the
bits below its own bit. There are few numbers: they are put in order, and sent to all tasks. Where a record has parts, or a lane two
inputs, offsets are not the order, or not all of it, and rows are sorted (:func:`reconcile.run.measures.resend_distance.placed`).
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconcile.run.frames.evidence import ONCE
from reconcile.spark.schemas import ACCEPTED

SENT_MAX: Final = 1_000_000
"""So many numbers are sent to all tasks; of more, rows are sorted."""
_NUMBER: Final = ["address", "partition", "block"]
_OF_NUMBER: Final = ["bits", "below"]
_BIT: Final = "shiftleft(1L, cast(offset & 63 as int))"
_LOWER: Final = "~shiftleft(-1L, cast(offset & 63 as int))"


def blocks(evidence: DataFrame) -> DataFrame:
    """address, partition, block, bits, below: of 64 offsets which were accepted with an ID, and how many below all of them.

    Only of what was judged where it stands; of a block that has nothing of that there is no row.

    Args:
        evidence: :data:`reconcile.spark.schemas.EVIDENCE`, without envelopes.
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
    """The rows, with ``before``: how many IDs were accepted at lower offsets of its partition; null = its block is not there.

    Args:
        rows: address, partition, offset, and more.
        blocks: As :func:`blocks` has them.
    """
    lower = F.bit_count(F.col("bits").bitwiseAND(F.expr(_LOWER)))
    joined = rows.withColumn("block", _block()).join(F.broadcast(blocks), on=_NUMBER, how="left")
    return joined.withColumn("before", F.col("below") + lower).drop("block", *_OF_NUMBER)


def _block() -> Column:
    return F.shiftright("offset", 6).alias("block")
