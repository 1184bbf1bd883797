"""Finds REORDERED: groups whose order is broken."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from reconcile.anomalies.names import Anomaly, rows, text
from reconcile.run.frames import id_positions
from reconcile.run.frames.evidence import PLACE
from reconcile.spark.schemas import PASSED


def may_be_broken(evidence: DataFrame, blocks: DataFrame) -> bool:
    """Return whether the order of some group may be broken, without sorting by group.

    If all records of an input partition are in order in an output partition, so are their groups. Then the
    output offset minus the number of accepted IDs before the record never falls. Records with equal
    differences form stretches (``blocks``), and each begins behind the one before. With several output
    partitions, the function also looks for groups in more than one of them.
    """
    accepted = _accepted(evidence)
    sides = ["out_address", "address", "partition"]
    placed = id_positions.with_before(
        accepted.select(*sides, "offset", "out_partition", "out_offset"), blocks
    )
    line = [*sides, "out_partition"]
    stretches = placed.groupBy(*line, (F.col("out_offset") - F.col("before")).alias("ahead")).agg(
        F.min("offset").alias("first"), F.max("offset").alias("last")
    )
    former = F.lag("last").over(Window.partitionBy(*line).orderBy("ahead"))
    broken = F.col("ahead").isNull() | (F.col("former") >= F.col("first"))
    checked = stretches.withColumn("former", former).groupBy(*sides).agg(
        F.count_if(broken).alias("broken"), F.countDistinct("out_partition").alias("partitions")
    )  # fmt: skip
    [(broken_ones, most)] = checked.agg(F.sum("broken"), F.max("partitions")).collect()
    if broken_ones or not most or most == 1:
        return bool(broken_ones)
    apart = F.min("out_partition") != F.max("out_partition")
    return not accepted.groupBy(*sides, "group").agg(apart.alias("apart")).where("apart").isEmpty()


def reordered(evidence: DataFrame, *, transactions: bool) -> DataFrame:
    """Return a row for each place where a group from one input partition breaks its order.

    A group in several output partitions has no order, so each change of partition is a row. If an input was
    accepted twice, its first output counts. Parts of ``transactions`` are in order only within a lane. One
    task sorts a large group, and spills to disk if memory is short.
    """
    accepted = _accepted(evidence)
    line = ["out_address", "group", "address", "partition", *(["lane"] if transactions else [])]
    lines = Window.partitionBy(*line).orderBy("out_partition", "out_offset")
    seen = accepted.withColumns(
        {
            "other_offset": F.lag("offset").over(lines),
            "other_part": F.lag("part_number").over(lines),
            "before_partition": F.lag("out_partition").over(lines),
        }
    ).where(
        "other_offset is not null and (out_partition != before_partition or offset < other_offset"
        " or (offset = other_offset and part_number < other_part))"
    )
    scattered = F.col("out_partition") != F.col("before_partition")
    apart = text("its group is also in accepted partition ", F.col("before_partition"))
    part = F.when(F.col("other_part") > 0, text(", part ", F.col("other_part"), ",")).otherwise("")
    after = text("accepted after offset ", F.col("other_offset"), part, " of its group")
    detail = F.when(scattered, apart).otherwise(after)
    return rows(seen, Anomaly.REORDERED, detail, other_partition=F.col("partition"))


def reordered_across(
    evidence: DataFrame, earlier: DataFrame, spans: DataFrame, outputs: DataFrame
) -> DataFrame:
    """Return a row for each record that broke the order of its group with the last run.

    Only inputs that waited and outputs that the last run already saw can do so. All other records come later
    in both logs. ``earlier`` are :data:`reconcile.spark.schemas.IDS` of the last run, of which nothing else
    is kept.
    """
    early = (
        _accepted(evidence)
        .withColumn("group_digest", F.xxhash64("group"))
        .join(
            F.broadcast(spans.select("address", "partition", "begin")),
            on=["address", "partition"],
            how="inner",
        )
        .join(F.broadcast(outputs), on=["out_address", "out_partition"], how="inner")
        .where("offset < begin or out_offset < out_begin")
    )
    line = ["out_address", "group_digest", "address", "partition", "lane", "out_partition"]
    place = F.struct("offset", "out_offset")
    ends = (
        earlier.join(early.select(*line).distinct(), on=line, how="left_semi")
        .groupBy(*line)
        .agg(
            F.max_by(place, F.struct("offset", "part_number")).alias("last_in"),
            F.max_by(place, "out_offset").alias("last_out"),
        )
    )
    both = early.join(ends, on=line, how="inner")
    late, soon = (
        (F.col(f"{end}.offset") < F.col("offset")) != (F.col(f"{end}.out_offset") < F.col("out_offset"))
        for end in ("last_in", "last_out")
    )
    found = both.withColumn(
        "other_offset", F.when(late, F.col("last_in.offset")).when(soon, F.col("last_out.offset"))
    ).where("other_offset is not null")
    side = F.when(F.col("other_offset") > F.col("offset"), "accepted after").otherwise("accepted before")
    detail = text(side, " offset ", F.col("other_offset"), " of its group, which the last run judged")
    return rows(found, Anomaly.REORDERED, detail, other_partition=F.col("partition"))


def scattered_across(evidence: DataFrame, earlier: DataFrame, outputs: DataFrame) -> DataFrame:
    """Return groups in another partition than in the last run; arguments: :func:`reordered_across`."""
    line = ["out_address", "group_digest", "address", "partition"]
    there = F.broadcast(outputs.select("out_address", "out_partition"))
    now = (
        _accepted(evidence)
        .withColumn("group_digest", F.xxhash64("group"))
        .join(there, on=["out_address", "out_partition"])
    )
    first = now.groupBy(*line, "out_partition").agg(
        F.min(F.struct("offset", "part_number", "out_offset", "id", "group")).alias("first")
    )
    before = earlier.groupBy(*line).agg(F.collect_set("out_partition").alias("before"))
    found = first.join(before, on=line, how="inner").where(
        ~F.array_contains("before", F.col("out_partition"))
    )
    placed = found.select(*line, "out_partition", "before", "first.*")
    partitions = F.array_join(F.array_sort("before").cast("array<string>"), ", ")
    detail = text("its group was in accepted partition ", partitions, " in the last run")
    return rows(placed, Anomaly.REORDERED, detail)


def _accepted(evidence: DataFrame) -> DataFrame:
    """Return accepted inputs that have a group, once each."""
    came_out = F.col("parts").isNull() | (F.col("part_number") > 0)
    return evidence.where(
        F.col("fate").isin(*PASSED)
        & (F.col("nth") == 1)
        & F.col("has_input")
        & F.col("group").isNotNull()
        & came_out
    ).select(*PLACE, "group", "lane", "out_address", "out_partition", "out_offset", "id")
