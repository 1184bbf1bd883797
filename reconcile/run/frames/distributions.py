"""What a page shows of large frames: a few numbers of each. All give :data:`reconcile.spark.schemas.NUMBERS`.

What ``at``, ``a`` to ``d`` and ``name`` hold is said at each.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconcile.page.report_data import DAY_MS, GROUPS_MAX, NAME_MAX, step_ms
from reconcile.run.frames.evidence import ONCE
from reconcile.spark.bins import power_of_two
from reconcile.spark.schemas import ACCEPTED, DIVERTED, NUMBERS

RING: Final = "ring"
LANE: Final = "lane"
DISTANCE: Final = "distance"
AGE: Final = "age"
MOMENT: Final = "moment"
GROUPS: Final = "groups"
LARGEST: Final = "largest"
ORPHANS: Final = "orphans"
STRAYS: Final = -1
"""The moment of all that is far from most."""
LONG_MS: Final = 8 * DAY_MS
"""Times that cover more than this are looked at for strays."""


def without_strays(first: int, last: int, low: int, high: int) -> tuple[int, int]:
    """First and last of the times (ms) that are no further from the middle half than three times its length, or a day.

    Seconds that were sent as milliseconds are in 1970: one such record would leave a single moment for all others.
    """
    reach = max(3 * (high - low), DAY_MS)
    return max(first, low - reach), min(last, high + reach)


def ring(resends: DataFrame, confidence: float) -> DataFrame:
    """Of an address: ``at``: the distance that covers the confidence; resends; distances p50, p99 and the largest.

    A percentile p is the smallest distance such that at least p of the resends are that far apart or less. Counted out, exactly.
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


def ring_by_lane(resends: DataFrame) -> DataFrame:
    """Of each lane (``at``): resends, and the distances p99 and the largest (``a`` to ``c``)."""
    summed = _summed(resends, "address", "lane")
    found = summed.groupBy("address", F.col("lane").alias("at")).agg(
        F.max("all").alias("a"), _covering("0.99").alias("b"), F.max("distance").alias("c")
    )
    return _numbers(LANE, found)


def _summed(resends: DataFrame, *by: str) -> DataFrame:
    """Distances, each with how many resends there are in ``all``, and how many ``upto`` it."""
    each = resends.groupBy(*by, "distance").agg(F.sum("count").alias("count"))
    whole = Window.partitionBy(*by)
    upto = F.sum("count").over(whole.orderBy("distance").rowsBetween(Window.unboundedPreceding, 0))
    return each.withColumn("all", F.sum("count").over(whole)).withColumn("upto", upto)


def _covering(share: str) -> Column:
    """The smallest distance up to which so many are."""
    enough = F.col("upto") >= F.lit(Decimal(share)) * F.col("all")
    return F.min(F.when(enough, F.col("distance")))


def bins(resends: DataFrame) -> DataFrame:
    """How many resends (``a``) are up to so far (``at``) apart: distances in IDs, and ages in seconds."""
    by_distance = resends.groupBy("address", power_of_two(F.col("distance")).alias("at")).agg(
        F.sum("count").alias("a")
    )
    by_age = resends.groupBy("address", F.col("age").alias("at")).agg(F.sum("count").alias("a"))
    return _numbers(DISTANCE, by_distance).unionByName(_numbers(AGE, by_age))


def moments(
    evidence: DataFrame, orphans: DataFrame | None, times: Sequence[tuple[int, int]], dropping: Column
) -> DataFrame:
    """Inputs, accepted ones and duplicates (``a`` to ``c``) by time (``at``). What has no timestamp is left out.

    Args:
        evidence: Of the night.
        orphans: Inputs without an output that are duplicates of nothing; None = there are none.
        times: Of each address the first and the last; what lies outside is at :data:`STRAYS`.
        dropping: Whether a record without an output is a duplicate, at its address.
    """
    fate = F.col("fate")
    dropped = fate.isNull() & ~F.col("waiting") & ((F.col("ids") > 0) | F.col("resent")) & dropping
    rows = evidence.where(F.expr(ONCE)).select(
        "address",
        "timestamp",
        F.lit(1).alias("one"),
        F.coalesce(fate == ACCEPTED, F.lit(False)).cast("int").alias("accepted"),
        (F.coalesce(fate == DIVERTED, F.lit(False)) | dropped).cast("int").alias("duplicate"),
    )
    if orphans is not None:
        none = F.lit(0)
        rows = rows.unionByName(
            orphans.where(fate.isNull() & dropping).select(
                "address",
                "timestamp",
                none.alias("one"),
                none.alias("accepted"),
                F.lit(-1).alias("duplicate"),
            )
        )
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
    """Groups (``a``) of up to so many records (``at``), and their records (``b``); and the largest: rank, records, name."""
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
    """Inputs without an output that are duplicates of nothing (``a``), by lane (``at``)."""
    by_lane = orphans.where("fate is null").groupBy("address", F.col("lane").alias("at"))
    return _numbers(ORPHANS, by_lane.agg(F.count(F.lit(1)).alias("a")))


def first_of(anomalies: DataFrame, most: int) -> DataFrame:
    """So many of each anomaly of an address, in the order of their places."""
    order = ["partition", "offset", "out_partition", "out_offset"]
    rank = F.row_number().over(Window.partitionBy("address", "anomaly").orderBy(*order))
    return (
        anomalies.withColumn("rank", rank)
        .where(F.col("rank") <= most)
        .orderBy("address", "anomaly", "rank")
        .drop("rank")
        .withColumns({name: _beginning(name) for name in ("id", "group", "detail")})
    )


def _beginning(name: str) -> Column:
    """Of bytes or text: enough to be known by. Producers make them as long as records may be, and they are collected."""
    return F.substring(name, 1, NAME_MAX + 1)


def by_address(values: Sequence[int]) -> Column:
    """One of these, by the address."""
    return F.get(F.array(*(F.lit(value).cast("bigint") for value in values)), F.col("address"))


def _numbers(of: str, found: DataFrame) -> DataFrame:
    there = set(found.columns)
    return found.select(
        *(
            (
                F.lit(of)
                if number.name == "of"
                else F.col(number.name)
                if number.name in there
                else F.lit(None)
            )
            .cast(number.dataType)
            .alias(number.name)
            for number in NUMBERS
        )
    )
