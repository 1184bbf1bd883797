"""How far apart a resend and what it repeats are: the smallest ring that would have caught it. HornetQ 37.2.

A lane has two inputs, its own partition and that of the forward topic, and judges each in its order. Where all of its IDs came
in one of them, their order is known, and so is the number of those between two. What came in the other came in between at a
moment that nobody saw; but a lane writes one transaction after the other, so its records are in its own order in each
partition of the output. From that follow, for each record, the smallest and the largest number of IDs that the lane can have
accepted before it. Where a lane writes to one output partition the two are the same for what was accepted; a resend without
an output came no later than the next of its input that was accepted, and the ring that caught it was large enough. A
distance is taken from the largest number before the resend and the smallest before its original: it is never too small
for a ring, as long as outputs are in order.
"""

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from reconcile.run.frames import id_positions
from reconcile.run.frames.evidence import FIRST
from reconcile.spark.bins import power_of_two
from reconcile.spark.schemas import ACCEPTED, DIVERTED, RESENDS

_LANE = ["address", "lane"]
_ID = ["address", "id_address", "id"]
_PLACED = ["lane", *_ID, "timestamp", "accepted", "earliest", "latest"]


def seen(evidence: DataFrame, detects: Collection[int], dropping: Collection[int]) -> DataFrame:
    """Accepted IDs, and inputs that repeat one if they repeat any.

    Args:
        evidence: :data:`reconcile.spark.schemas.EVIDENCE`.
        detects: Addresses whose IDs are looked at.
        dropping: Those of them where what has no output is a duplicate.
    """
    whole = F.col("whole")
    dropped = whole.isNull() & ~F.col("waiting") & among("address", dropping)
    # What was known by its hop no ring has caught.
    by_hop = F.col("resent")
    return (
        evidence.where(F.expr(FIRST) & F.col("id").isNotNull() & among("address", detects))
        .where((whole == ACCEPTED) | (((whole == DIVERTED) | dropped) & ~by_hop))
        .select(
            *_LANE, "partition", "offset", "part_number", "forward_offset", F.col("part_address").alias("id_address"), "id",
            "timestamp", "out_address", "out_partition", "out_offset",
            F.coalesce(whole == ACCEPTED, F.lit(False)).alias("accepted"),
        )
    )  # fmt: skip


def placed(
    seen: DataFrame, started: Column, forwarded: Sequence[Collection[int]], blocks: DataFrame | None = None
) -> DataFrame:
    """The rows, with ``earliest`` and ``latest``: the smallest and largest number of IDs that the lane had accepted before.

    Args:
        seen: address, lane, partition, offset, part_number, forward_offset, out_address, out_partition, out_offset, accepted, and
            more. Without ``blocks`` all that each lane accepted; with them only of lanes that have two inputs.
        started: IDs that the lane had accepted when the night began.
        forwarded: Lanes of each address that have rows with a forward offset. All others are spared four sorts.
        blocks: As :func:`reconcile.run.frames.id_positions.blocks` has them, of this night; None = rows are sorted.
    """
    if not any(forwarded):
        return _in_line(seen, started, blocks)
    two = by_lane([dict.fromkeys(item, 1) for item in forwarded]) > 0
    return _in_line(seen.where(~two), started, blocks).unionByName(_merged(seen.where(two), started))


def _in_line(seen: DataFrame, started: Column, blocks: DataFrame | None) -> DataFrame:
    """Of lanes with one input: its order is theirs."""
    if blocks is not None:
        counted = id_positions.with_before(seen, blocks)
        known = counted.withColumn("earliest", started + F.col("before")).drop("before")
        return known.withColumn("latest", F.col("earliest"))
    line = Window.partitionBy(*_LANE).orderBy("offset", "part_number")
    before = F.sum(F.col("accepted").cast("bigint")).over(_before(line))
    placed = seen.withColumn("earliest", started + F.coalesce(before, F.lit(0)))
    return placed.withColumn("latest", F.col("earliest"))


def _merged(seen: DataFrame, started: Column) -> DataFrame:
    """Of lanes with two inputs."""
    one = F.col("accepted").cast("bigint")
    # The first window is the widest: the others need no shuffle of their own.
    both = seen.withColumns(
        {
            "total": F.sum(one).over(Window.partitionBy(*_LANE)),
            "way": F.col("forward_offset").isNotNull(),
            "at": F.coalesce("forward_offset", "offset"),
        }
    )
    way = Window.partitionBy(*_LANE, "way")
    counted = both.withColumn(
        "own", F.coalesce(F.sum(one).over(_before(way.orderBy("at", "part_number"))), F.lit(0))
    ).withColumn("own_total", F.sum(one).over(way))
    witnessed = _witnessed(counted)
    least = F.max("least").over(way.orderBy("at", "part_number").rowsBetween(Window.unboundedPreceding, 0))
    back = way.orderBy(F.desc("at"), F.desc("part_number"))
    most = F.min("most").over(back.rowsBetween(Window.unboundedPreceding, 0))
    others = F.col("total") - F.col("own_total")
    return (
        witnessed.withColumn("earliest", started + F.col("own") + F.coalesce(least, F.lit(0)))
        .withColumn("latest", started + F.col("own") + F.coalesce(most, others))
        .drop("total", "way", "at", "own", "own_total", "least", "most")
    )


def _witnessed(counted: DataFrame) -> DataFrame:
    """What the output says of each accepted ID: how many of the lane's other input were accepted before it, at least and at most."""
    output = Window.partitionBy(*_LANE, "out_address", "out_partition")
    forth = _before(output.orderBy("out_offset", "part_number"))
    back = _before(output.orderBy(F.desc("out_offset"), F.desc("part_number")))
    own, way, accepted = F.col("own"), F.col("way"), F.col("accepted")
    passed = {item: F.max(F.when(accepted & (way == item), own + 1)).over(forth) for item in (True, False)}
    coming = {item: F.min(F.when(accepted & (way == item), own)).over(back) for item in (True, False)}
    return counted.withColumn(
        "least", F.when(accepted, F.when(way, passed[False]).otherwise(passed[True]))
    ).withColumn("most", F.when(accepted, F.when(way, coming[False]).otherwise(coming[True])))


def _before(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, -1)


def beside(tonight: DataFrame, earlier: DataFrame) -> DataFrame:
    """:func:`placed` rows of the night, and :data:`reconcile.spark.schemas.IDS` of those before, which have no ``latest``."""
    before = earlier.select(
        *_ID, "lane", "timestamp", F.lit(True).alias("accepted"),
        F.col("position").alias("earliest"), F.lit(None).cast("bigint").alias("latest"),
    )  # fmt: skip
    return tonight.select(*_PLACED).unionByName(before)


def distances(rows: DataFrame, max_age_ms: Column, capacity: Column) -> DataFrame:
    """address, lane, distance, age (seconds, as :func:`reconcile.spark.bins.power_of_two` has it) of each resend of the night.

    It is measured from the last time before that its lane accepted the ID. Where that is so long ago that the ID no longer
    counted, no ring would have caught it, and it is left out. What was not accepted was caught: it was no further apart than the ring was large.

    Args:
        rows: As :func:`beside` has them.
        max_age_ms: Of the address; 0 = no limit.
        capacity: The largest ring that it can have had.
    """
    place = F.when(F.col("accepted"), F.col("earliest")).otherwise(F.col("latest"))
    # What stands before an ID that is accepted is not its resend.
    of_id = Window.partitionBy(*_ID, "lane").orderBy(place, "accepted")
    original = F.when(F.col("accepted"), F.struct("earliest", "timestamp"))
    age = F.col("timestamp") - F.col("original.timestamp")
    apart = F.col("latest") - F.col("original.earliest")
    caught = F.when(F.col("accepted"), apart).otherwise(F.least(apart, capacity))
    return (
        rows.withColumn("original", F.last(original, ignorenulls=True).over(_before(of_id)))
        .where(F.col("latest").isNotNull() & F.col("original.earliest").isNotNull())
        .where((max_age_ms == 0) | (age <= max_age_ms))
        .select(
            *_LANE,
            F.greatest(F.lit(1), caught).cast("bigint").alias("distance"),
            power_of_two(F.ceil(age / 1000).cast("bigint")).alias("age"),
        )
    )  # fmt: skip


def counted(distances: DataFrame) -> DataFrame:
    """:data:`reconcile.spark.schemas.RESENDS`."""
    return (
        distances.groupBy(*_LANE, "distance", "age")
        .agg(F.count(F.lit(1)).alias("count"))
        .select(*RESENDS.names)
    )


def among(name: str, numbers: Collection[int]) -> Column:
    """Whether a column is one of these."""
    return F.col(name).isin(sorted(numbers)) if numbers else F.lit(False)


def by_lane(counts: Sequence[Mapping[int, int]], lane: str = "lane") -> Column:
    """A number for each address and lane, 0 where none is given: one literal, so that nothing has to be joined."""
    rows = [
        "array(" + ", ".join(f"{count.get(number, 0)}L" for number in range(max(count, default=0) + 1)) + ")"
        for count in counts
    ]
    lanes = F.get(F.expr(f"array({', '.join(rows)})"), F.col("address"))
    return F.coalesce(F.get(lanes, F.col(lane)), F.lit(0))
