"""Candidate rows of each anomaly, counted in one pass. A finder without candidates does not run.

The conditions are those by which the finders select their rows.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from reconcile.anomalies.finders import bridge_hops, fates, lost_inputs, originals
from reconcile.run.frames.evidence import FIRST, WITHOUT_INPUT
from reconcile.spark.schemas import ACCEPTED

SECOND: Final = "second"
STRAY: Final = "stray"
CHANGED: Final = "changed"
UNREAD: Final = "unread"
UNMATCHED: Final = "unmatched"
SAID_TO_REPEAT: Final = "said_to_repeat"
REPEATING: Final = "repeating"
ALONE: Final = "alone"
NUMBERED_TWICE: Final = "numbered_twice"
"""Lanes with more sequence numbers than lie between the lowest and the highest."""
_CONDITIONS: Final[Mapping[str, str]] = {
    SECOND: fates.SECOND,
    STRAY: fates.STRAY,
    CHANGED: fates.CHANGED,
    UNREAD: bridge_hops.UNREAD,
    UNMATCHED: lost_inputs.UNMATCHED,
    SAID_TO_REPEAT: lost_inputs.SAID_TO_REPEAT,
    REPEATING: originals.REPEATING,
    ALONE: WITHOUT_INPUT,
}


def counted() -> Iterator[Column]:
    """Yield one aggregate for each name, as ``suspect_<name>``."""
    for name, condition in _CONDITIONS.items():
        yield F.count_if(F.expr(condition)).alias(f"suspect_{name}")


def sequences() -> Iterator[Column]:
    """Yield for one lane: the count of IDs with a sequence number, the lowest number, and the highest."""
    counts = F.expr(FIRST) & (F.col("whole") == ACCEPTED) & F.col("id").isNotNull()
    number = F.when(counts, F.col("sequence"))
    yield F.count(number).alias("numbered")
    yield F.min(number).alias("lowest")
    yield F.max(number).alias("highest")


def of_row(row: Row) -> dict[str, int]:
    """Return the number of candidates of each name."""
    twice = row["numbered"] > 0 and row["numbered"] > row["highest"] - row["lowest"] + 1
    return {name: row[f"suspect_{name}"] for name in _CONDITIONS} | {NUMBERED_TWICE: int(twice)}
