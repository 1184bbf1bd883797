"""Candidate rows of each anomaly, counted in one pass. A finder without candidates does not run.

The conditions are those by which the finders select their rows.
"""

from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from reconcile.anomalies.finders import bridge_hops, fates, lost_inputs, originals
from reconcile.run.frames.evidence import FIRST, WITHOUT_INPUT
from reconcile.spark.schemas import ACCEPTED

NUMBERED_TWICE: Final = "numbered twice"
"""Lanes with more sequence numbers than lie between the lowest and the highest."""
CONDITIONS: Final = (
    fates.SECOND,
    fates.STRAY,
    fates.CHANGED,
    bridge_hops.UNREAD,
    lost_inputs.UNMATCHED,
    lost_inputs.SAID_TO_REPEAT,
    originals.REPEATING,
    WITHOUT_INPUT,
)


def counted() -> Iterator[Column]:
    """Yield one aggregate for each condition, with its text as name."""
    for condition in CONDITIONS:
        yield F.count_if(F.expr(condition)).alias(condition)


def sequences() -> Iterator[Column]:
    """Yield for one lane: the count of IDs with a sequence number, the lowest number, and the highest."""
    counts = F.expr(FIRST) & (F.col("whole") == ACCEPTED) & F.col("id").isNotNull()
    number = F.when(counts, F.col("sequence"))
    yield F.count(number).alias("numbered")
    yield F.min(number).alias("lowest")
    yield F.max(number).alias("highest")


def of_row(row: Row) -> dict[str, int]:
    """Return the number of candidates by condition."""
    twice = row["numbered"] > 0 and row["numbered"] > row["highest"] - row["lowest"] + 1
    return {condition: row[condition] for condition in CONDITIONS} | {NUMBERED_TWICE: int(twice)}
