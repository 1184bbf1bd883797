"""The names of anomalies, in the order of a report, and the row of one."""

from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from reconcile.schemas import ANOMALIES


class Anomaly(StrEnum):
    """The table of the design."""

    LOST = "LOST"
    """An input neither accepted, duplicate nor quarantined."""
    DOUBLED = "DOUBLED"
    """One input accepted twice, or of several fates."""
    PHANTOM = "PHANTOM"
    """Accepted without such an input."""
    REORDERED = "REORDERED"
    """A group's accepted messages not in their order of arrival in one input partition."""
    FORGOTTEN = "FORGOTTEN"
    """Two inputs of one ID accepted in one lane within the ring's promise."""
    OVERRUN = "OVERRUN"
    """The same beyond the promise: allowed."""
    CROSS_LANE = "CROSS-LANE"
    """Two inputs of one ID accepted in two lanes."""
    WRONG_VERDICT = "WRONG-VERDICT"
    """Called duplicate, and no original exists."""
    CORRUPTED = "CORRUPTED"
    """Key, value or user headers changed on the way."""
    TORN = "TORN"
    """A transaction accepted in part."""
    GAP = "GAP"
    """Evidence already deleted by retention: unknown."""


def rows(found: DataFrame, anomaly: Anomaly, detail: Column, /, **columns: Column) -> DataFrame:
    """The rows of an anomaly; columns that ``found`` has by the schema's names are taken as they are."""
    there = set(found.columns)
    special = {"anomaly": F.lit(anomaly.value), "detail": detail, **columns}
    return found.select(
        *(
            special.get(each.name, F.col(each.name) if each.name in there else F.lit(None))
            .cast(each.dataType)
            .alias(each.name)
            for each in ANOMALIES
        )
    )
