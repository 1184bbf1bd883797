"""Which rows of the evidence each anomaly looks at. One pass counts them; where there are none, that anomaly has nothing to look at.

The conditions are those by which the anomalies themselves choose their rows, so nothing is judged by less than before.
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
NAMES: Final = tuple(f"suspect_{name}" for name in _CONDITIONS)


def none() -> dict[str, int]:
    """Before anything is counted."""
    return dict.fromkeys(_CONDITIONS, 0)


def counted() -> Iterator[Column]:
    """An aggregate of each, under its :data:`NAMES`."""
    for name, condition in zip(NAMES, _CONDITIONS.values(), strict=True):
        yield F.count_if(F.expr(condition)).alias(name)


def of_row(row: Row) -> dict[str, int]:
    """What was counted of each, by its plain name."""
    return {name: row[column] for name, column in zip(_CONDITIONS, NAMES, strict=True)}
