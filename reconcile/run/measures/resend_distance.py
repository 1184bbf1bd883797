"""Distance between a resend and its original: the smallest ring that would have caught it (HornetQ 37.2).

A lane has its own partition and one of the forward topic, and judges each in order. If all of its IDs came
through one input, the number between two of them is known. With two inputs the logs do not show the
interleaving. But a lane writes one transaction after the other, so each output partition has its records in
the lane's order. This gives a lower and an upper bound of the IDs that the lane accepted before a record.

If an address sets ``lanes``, accepted records have the sequence numbers of their IDs, which give the places.
A record that was not accepted lies between the last sequence number before it and the first one behind it in
its input.

A distance is the upper bound of the resend minus the lower bound of its original. It is never too small for a
ring, as long as outputs are in order.
"""

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from reconcile.run.frames import id_positions
from reconcile.run.frames.evidence import FIRST
from reconcile.spark.columns import constant, has_no_value, power_of_two
from reconcile.spark.schemas import ACCEPTED, REPEATS, RESENDS

_LANE = ["address", "lane"]
_ID = ["address", "id_address", "id"]
_PLACED = ["lane", *_ID, "timestamp", "value_digest", "accepted", "earliest", "latest"]


def seen(evidence: DataFrame, detects: Collection[int], dropping: Collection[int]) -> DataFrame:
    """Return accepted IDs, and inputs that may repeat one of them.

    ``detects`` and ``dropping`` are numbers of addresses that detect and that drop duplicates: there an input
    without an output is one.
    """
    whole = F.col("whole")
    dropped = whole.isNull() & ~F.col("waiting") & among("address", dropping)
    # leave out messages recognized by their hop: no ring caught them
    by_hop = F.col("resent")
    return (
        evidence.where(F.expr(FIRST) & F.col("id").isNotNull() & among("address", detects))
        .where((whole == ACCEPTED) | ((whole.isin(*REPEATS) | dropped) & ~by_hop))
        .select(
            *_LANE, "partition", "offset", "part_number", "forward_offset", F.col("part_address").alias("id_address"), "id",
            "timestamp", "value_digest", "out_address", "out_partition", "out_offset", "sequence",
            F.coalesce(whole == ACCEPTED, F.lit(False)).alias("accepted"),
        )
    )  # fmt: skip


def placed(
    seen: DataFrame,
    started: Column,
    forwarded: Sequence[Collection[int]],
    blocks: DataFrame | None = None,
    sequenced: Collection[int] = (),
) -> DataFrame:
    """Add ``earliest`` and ``latest``: bounds of the IDs that the lane accepted before.

    Args:
        seen: Rows of all IDs that each lane accepted; with ``blocks``, only lanes with two inputs need all.
        started: IDs that the lane had accepted before the run.
        forwarded: Lanes with forwarded rows, by address. Other lanes do not need the four sorts.
        blocks: Result of :func:`reconcile.run.frames.id_positions.blocks`; None = sort the rows.
        sequenced: Addresses whose accepted IDs have sequence numbers.
    """
    if sequenced:
        others = placed(seen.where(~among("address", sequenced)), started, forwarded, blocks)
        return others.unionByName(_in_sequence(seen.where(among("address", sequenced))))
    if not any(forwarded):
        return _in_line(seen, started, blocks)
    two = by_lane([dict.fromkeys(item, 1) for item in forwarded]) > 0
    return _in_line(seen.where(~two), started, blocks).unionByName(_merged(seen.where(two), started))


def _in_line(seen: DataFrame, started: Column, blocks: DataFrame | None) -> DataFrame:
    if blocks is not None:
        counted = id_positions.with_before(seen, blocks)
        known = counted.withColumn("earliest", started + F.col("before")).drop("before")
        return known.withColumn("latest", F.col("earliest"))
    line = Window.partitionBy(*_LANE).orderBy("offset", "part_number")
    before = F.sum(F.col("accepted").cast("bigint")).over(_before(line))
    placed = seen.withColumn("earliest", started + F.coalesce(before, F.lit(0)))
    return placed.withColumn("latest", F.col("earliest"))


def _in_sequence(seen: DataFrame) -> DataFrame:
    """Place rows by sequence numbers, which count the IDs since the ring was new."""
    line = Window.partitionBy(*_LANE, "partition", F.col("forward_offset").isNotNull())
    at = F.coalesce("forward_offset", "offset")
    last = F.max("sequence").over(_before(line.orderBy(at, "part_number")))
    following = F.min("sequence").over(_before(line.orderBy(at.desc(), F.desc("part_number"))))
    newest = F.max("sequence").over(Window.partitionBy(*_LANE))
    places = {"last": last, "following": following, "newest": newest}
    earliest = F.coalesce("sequence", F.col("last") + 1, F.lit(0))
    latest = F.coalesce("sequence", "following", F.col("newest") + 1, earliest)
    return seen.withColumns(places).withColumns({"earliest": earliest, "latest": latest}).drop(*places)


def _merged(seen: DataFrame, started: Column) -> DataFrame:
    one = F.col("accepted").cast("bigint")
    # The first window has the fewest keys, so the other windows need no shuffle of their own.
    both = seen.withColumns(
        {
            "total": F.sum(one).over(Window.partitionBy(*_LANE)),
            "forwarded": F.col("forward_offset").isNotNull(),
            "at": F.coalesce("forward_offset", "offset"),
        }
    )
    route = Window.partitionBy(*_LANE, "forwarded")
    counted = both.withColumn(
        "own", F.coalesce(F.sum(one).over(_before(route.orderBy("at", "part_number"))), F.lit(0))
    ).withColumn("own_total", F.sum(one).over(route))
    witnessed = _witnessed(counted)
    least = F.max("least").over(route.orderBy("at", "part_number").rowsBetween(Window.unboundedPreceding, 0))
    back = route.orderBy(F.desc("at"), F.desc("part_number"))
    most = F.min("most").over(back.rowsBetween(Window.unboundedPreceding, 0))
    others = F.col("total") - F.col("own_total")
    return (
        witnessed.withColumn("earliest", started + F.col("own") + F.coalesce(least, F.lit(0)))
        .withColumn("latest", started + F.col("own") + F.coalesce(most, others))
        .drop("total", "forwarded", "at", "own", "own_total", "least", "most")
    )


def _witnessed(counted: DataFrame) -> DataFrame:
    """Add bounds of the IDs that the lane's other input had before."""
    output = Window.partitionBy(*_LANE, "out_address", "out_partition")
    forth = _before(output.orderBy("out_offset", "part_number"))
    back = _before(output.orderBy(F.desc("out_offset"), F.desc("part_number")))
    own, forwarded, accepted = F.col("own"), F.col("forwarded"), F.col("accepted")
    passed = {
        item: F.max(F.when(accepted & (forwarded == item), own + 1)).over(forth) for item in (True, False)
    }
    coming = {item: F.min(F.when(accepted & (forwarded == item), own)).over(back) for item in (True, False)}
    return counted.withColumn(
        "least", F.when(accepted, F.when(forwarded, passed[False]).otherwise(passed[True]))
    ).withColumn("most", F.when(accepted, F.when(forwarded, coming[False]).otherwise(coming[True])))


def _before(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, -1)


def beside(this_run: DataFrame, earlier: DataFrame) -> DataFrame:
    """Join :func:`placed` rows of this run with IDs of earlier runs, which have no ``latest``."""
    before = earlier.select(
        *_ID, "lane", "timestamp", "value_digest", F.lit(True).alias("accepted"),
        F.col("position").alias("earliest"), F.lit(None).cast("bigint").alias("latest"),
    )  # fmt: skip
    return this_run.select(*_PLACED).unionByName(before)


def distances(rows: DataFrame, max_age_ms: Column, capacity: Column) -> DataFrame:
    """Return lane, distance (IDs), age (s, a power of two) and conflict (another value) of each resend.

    A resend of an ID older than ``id_max_age`` is left out, because no ring would have caught it. A resend
    that was not accepted was caught, so its distance is at most the size of the ring.

    Args:
        rows: Result of :func:`beside`.
        max_age_ms: Maximum ID age of the address; 0 = no limit.
        capacity: Largest ring size that the address may have had.
    """
    place = F.when(F.col("accepted"), F.col("earliest")).otherwise(F.col("latest"))
    # an accepted ID sorts behind records at its place, which cannot be its resends
    of_id = Window.partitionBy(*_ID, "lane").orderBy(place, "accepted")
    original = F.when(F.col("accepted"), F.struct("earliest", "timestamp", "value_digest"))
    age = F.col("timestamp") - F.col("original.timestamp")
    apart = F.col("latest") - F.col("original.earliest")
    neither = has_no_value("value_digest") & has_no_value("original.value_digest")
    other = (F.col("value_digest") != F.col("original.value_digest")) & ~neither
    caught = F.when(F.col("accepted"), apart).otherwise(F.least(apart, capacity))
    return (
        rows.withColumn("original", F.last(original, ignorenulls=True).over(_before(of_id)))
        .where(F.col("latest").isNotNull() & F.col("original.earliest").isNotNull())
        .where((max_age_ms == 0) | (age <= max_age_ms))
        .select(
            *_LANE,
            F.greatest(F.lit(1), caught).cast("bigint").alias("distance"),
            power_of_two(F.ceil(age / 1000).cast("bigint")).alias("age"),
            F.coalesce(other & ~F.col("accepted"), F.lit(False)).alias("conflict"),
        )
    )  # fmt: skip


def counted(distances: DataFrame) -> DataFrame:
    """Return :data:`reconcile.spark.schemas.RESENDS`."""
    return (
        distances.groupBy(*_LANE, "distance", "age")
        .agg(F.count(F.lit(1)).alias("count"), F.count_if("conflict").alias("conflicts"))
        .select(*RESENDS.names)
    )


def among(name: str, numbers: Collection[int]) -> Column:
    """Return whether a column is one of these numbers."""
    return F.col(name).isin(sorted(numbers)) if numbers else F.lit(False)


def by_lane(counts: Sequence[Mapping[int, int]], lane: str = "lane") -> Column:
    """Return a number by address and lane as a literal instead of a join; absent = 0."""
    rows = [[count.get(number, 0) for number in range(max(count, default=0) + 1)] for count in counts]
    lanes = F.get(constant(rows, "array<array<bigint>>"), F.col("address"))
    return F.coalesce(F.get(lanes, F.col(lane)), F.lit(0))
