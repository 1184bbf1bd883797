"""Candidate rows of each anomaly, counted in one pass. A finder without candidates does not run.

The conditions are those by which the finders choose their rows.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from reconcile.anomalies.finders import bridge_hops, fates, lost_inputs, originals
from reconcile.run.frames.evidence import WITHOUT_INPUT

SECOND: Final = "second"
STRAY: Final = "stray"
CHANGED: Final = "changed"
UNREAD: Final = "unread"
UNMATCHED: Final = "unmatched"
SAID_TO_REPEAT: Final = "said_to_repeat"
REPEATING: Final = "repeating"
ALONE: Final = "alone"
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
    """One aggregate for each name, as ``suspect_<name>``."""
    for name, condition in _CONDITIONS.items():
        yield F.count_if(F.expr(condition)).alias(f"suspect_{name}")


def of_row(row: Row) -> dict[str, int]:
    """The number of candidates of each name."""
    return {name: row[f"suspect_{name}"] for name in _CONDITIONS}
