"""Distributions of large frames for the report page, as :data:`reconcile.spark.schemas.NUMBERS`.

The docstring of each function names the contents of the columns ``at``, ``a`` to ``d`` and ``name``.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconcile.page.report_data import DAY_MS, GROUPS_MAX, NAME_MAX, step_ms
from reconcile.run.frames.evidence import ONCE
from reconcile.spark.columns import constant, of_schema, power_of_two
from reconcile.spark.schemas import ACCEPTED, NUMBERS, REPEATS

RING: Final = "ring"
ENOUGH: Final = "enough"
LANE: Final = "lane"
DISTANCE: Final = "distance"
AGE: Final = "age"
MOMENT: Final = "moment"
GROUPS: Final = "groups"
LARGEST: Final = "largest"
ORPHANS: Final = "orphans"
CONFLICTS: Final = "conflicts"
STRAYS: Final = -1  # value of ``at`` for records with a timestamp far from most
LONG_MS: Final = 8 * DAY_MS  # a longer time range is searched for strays


def without_strays(first: int, last: int, low: int, high: int) -> tuple[int, int]:
    """Limit a range of times (ms) to three times its middle half (``low`` to ``high``), at least to a day.

    Without the limit, one record from 1970, with seconds sent as milliseconds, would leave a single moment
    for all others.
    """
    reach = max(3 * (high - low), DAY_MS)
    return max(first, low - reach), min(last, high + reach)


def ring(resends: DataFrame, confidence: float) -> DataFrame:
    """Return by address the distance that covers the confidence (``at``), and figures of resends.

    ``a``: number of resends; ``b`` to ``d``: p50, p99 and maximum of their distances.
    """
    found = (
        _summed(resends, "address")
        .groupBy("address")
        .agg(
            _covering(f"{confidence:.15f}").alias("at"),
            F.max("all").alias("a"),
            _covering("0.50").alias("b"),
            _covering("0.99").alias("c"),
            F.max("distance").alias("d"),
        )
    )
    return _numbers(RING, found)


def enough(resends: DataFrame, share: float) -> DataFrame:
    """Return the distance that covers this share of the resends (``at``), by address."""
    exact = _covering(f"{share - 1e-9:.12f}")  # subtract a little: rounding must not ask for one more resend
    found = _summed(resends, "address").groupBy("address").agg(exact.alias("at"))
    return _numbers(ENOUGH, found)


def ring_by_lane(resends: DataFrame) -> DataFrame:
    """Return number of resends, p99 and maximum of distances (``a`` to ``c``) for each lane (``at``)."""
    summed = _summed(resends, "address", "lane")
    found = summed.groupBy("address", F.col("lane").alias("at")).agg(
        F.max("all").alias("a"), _covering("0.99").alias("b"), F.max("distance").alias("c")
    )
    return _numbers(LANE, found)


def conflicts(resends: DataFrame) -> DataFrame:
    """Return by address the number of resends whose value differs from their original's (``a``)."""
    found = resends.groupBy("address").agg(F.coalesce(F.sum("conflicts"), F.lit(0)).alias("a"))
    return _numbers(CONFLICTS, found.withColumn("at", F.lit(0)))


def _summed(resends: DataFrame, *by: str) -> DataFrame:
    """Add ``all``, the number of resends, and ``upto``, their number up to each distance."""
    distances = resends.groupBy(*by, "distance").agg(F.sum("count").alias("count"))
    whole = Window.partitionBy(*by)
    upto = F.sum("count").over(whole.orderBy("distance").rowsBetween(Window.unboundedPreceding, 0))
    return distances.withColumn("all", F.sum("count").over(whole)).withColumn("upto", upto)


def _covering(share: str) -> Column:
    """Return the smallest distance that covers this share of the resends."""
    enough = F.col("upto") >= F.lit(Decimal(share)) * F.col("all")
    return F.min(F.when(enough, F.col("distance")))


def bins(resends: DataFrame) -> DataFrame:
    """Return resends (``a``) by distance in IDs, and by age in seconds, each up to ``at``."""
    by_distance = resends.groupBy("address", power_of_two(F.col("distance")).alias("at")).agg(
        F.sum("count").alias("a")
    )
    by_age = resends.groupBy("address", F.col("age").alias("at")).agg(F.sum("count").alias("a"))
    return _numbers(DISTANCE, by_distance).unionByName(_numbers(AGE, by_age))


def moments(
    evidence: DataFrame, orphans: DataFrame | None, times: Sequence[tuple[int, int]], dropping: Column
) -> DataFrame:
    """Return inputs, accepted inputs and duplicates (``a`` to ``c``) by time (``at``).

    Records without a timestamp do not count; times outside ``times`` are at :data:`STRAYS`. ``orphans`` are
    inputs without an output that repeat nothing. ``dropping``: the address drops duplicates, so that other
    records without an output are duplicates.
    """
    fate = F.col("fate")
    dropped = fate.isNull() & ~F.col("waiting") & ((F.col("ids") > 0) | F.col("resent")) & dropping
    rows = evidence.where(F.expr(ONCE)).select(
        "address",
        "timestamp",
        F.lit(1).alias("one"),
        F.coalesce(fate == ACCEPTED, F.lit(False)).cast("int").alias("accepted"),
        (F.coalesce(fate.isin(*REPEATS), F.lit(False)) | dropped).cast("int").alias("duplicate"),
    )
    if orphans is not None:
        instead = ("address", "timestamp", "0 as one", "0 as accepted", "-1 as duplicate")
        rows = rows.unionByName(orphans.where(fate.isNull() & dropping).selectExpr(*instead))
    step = by_address([step_ms(*time) for time in times])
    first, last = (by_address(time) for time in zip(*times, strict=True))
    at = F.when(F.col("timestamp").between(first, last), F.col("timestamp") - F.col("timestamp") % step)
    found = (
        rows.where("timestamp > 0")
        .groupBy("address", F.coalesce(at, F.lit(STRAYS)).alias("at"))
        .agg(F.sum("one").alias("a"), F.sum("accepted").alias("b"), F.sum("duplicate").alias("c"))
    )
    return _numbers(MOMENT, found)


def groups(evidence: DataFrame) -> DataFrame:
    """Return groups (``a``) with up to ``at`` records and their records (``b``), and the largest groups.

    A row of the largest groups has the rank (``at``), the number of records (``a``) and the name.
    """
    sizes = (
        evidence.where(F.expr(ONCE) & F.col("group").isNotNull())
        .groupBy("address", "group")
        .agg(F.count(F.lit(1)).alias("records"))
    )
    by_size = sizes.groupBy("address", power_of_two(F.col("records")).alias("at")).agg(
        F.count(F.lit(1)).alias("a"), F.sum("records").alias("b")
    )
    rank = F.row_number().over(Window.partitionBy("address").orderBy(F.desc("records"), "group"))
    largest = (
        sizes.withColumn("at", rank)
        .where(F.col("at") <= GROUPS_MAX)
        .select("address", "at", F.col("records").alias("a"), _beginning("group").alias("name"))
    )
    return _numbers(GROUPS, by_size).unionByName(_numbers(LARGEST, largest))


def orphaned(orphans: DataFrame) -> DataFrame:
    """Return the number of inputs without an output that repeat nothing (``a``), by lane (``at``)."""
    by_lane = orphans.where("fate is null").groupBy("address", F.col("lane").alias("at"))
    return _numbers(ORPHANS, by_lane.agg(F.count(F.lit(1)).alias("a")))


PLACES: Final = (
    "partition", "offset", "part_number", "out_topic", "out_partition", "out_offset", "other_partition", "other_offset", "id",
    "detail",
)  # fmt: skip
"""Total order of the anomalies of one name and address, so that pages of a list never share a row."""


def first_of(anomalies: DataFrame, most: int) -> DataFrame:
    """Return the first ``most`` anomalies of each name and address, in order."""
    rank = F.row_number().over(Window.partitionBy("address", "anomaly").orderBy(*PLACES))
    return (
        anomalies.withColumn("rank", rank)
        .where(F.col("rank") <= most)
        .orderBy("address", "anomaly", "rank")
        .drop("rank")
        .withColumns({name: _beginning(name) for name in ("id", "group", "detail")})
    )


def _beginning(name: str) -> Column:
    """Cut bytes or text to a recognizable beginning: collected values may be as long as records."""
    return F.substring(name, 1, NAME_MAX + 1)


def by_address(values: Sequence[int]) -> Column:
    """Return a column with the value of the row's address."""
    return F.get(constant(values, "array<bigint>"), F.col("address"))


def _numbers(of: str, found: DataFrame) -> DataFrame:
    return found.select(*of_schema(NUMBERS, {"of": F.lit(of)}, found.columns))
