"""What an input that is not accepted can be a duplicate of: an ID that the ring of its lane still knew."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconcile.anomalies.finders import nearest
from reconcile.run.frames.evidence import FIRST, PLACE, RECORD
from reconcile.run.frames.journal import empties
from reconcile.spark.schemas import DIVERTED

REPEATING: Final = (
    f"{FIRST} and id is not null and not resent and ((whole is null and not waiting) or whole = {DIVERTED})"
)
"""Of the evidence: what is not accepted, and may be a duplicate by its ID."""
_WAY: Final = ["address", "lane", "way"]
_BLOCK: Final = 10
"""So many bits of a place are one in its block."""
_OURS: Final = ("max_age_ms", "largest", "emptied", "on", "named", "way", "at", "first", "ambiguous")


def without_near(
    candidates: DataFrame, originals: DataFrame, rules: DataFrame, events: DataFrame | None, night: int
) -> DataFrame:
    """Those that are no duplicate of one that came near before by the same way: :func:`without_original` looks at them.

    An original is another input of the same ID, accepted in the same lane, or in one that has handed on to it what it knew (or of
    the same group, which is the same home whatever way they took), and not after it, nor so long before it that it no longer counts, nor before the ring was emptied
    by order. Where a diverted duplicate names its original, it must be that one. Nothing is one where the ring was off.

    Args:
        candidates: Of :data:`reconcile.spark.schemas.EVIDENCE`.
        originals: :data:`reconcile.spark.schemas.IDS` of this night and those before, :func:`with_heirs`.
        rules: address, max_age_ms, largest, and more.
        events: :data:`reconcile.spark.schemas.EVENTS`; None = there are none.
        night: This one's number.
    """
    limits = F.broadcast(rules.select("address", "max_age_ms", "largest"))
    mine = _ring_of(candidates.join(limits, on="address", how="left"), events)
    named = F.struct(F.col("original_partition").alias("partition"), F.col("original_offset").alias("offset"))
    placed = mine.withColumns(
        {
            "way": F.col("forward_offset").isNotNull(),
            "at": F.coalesce("forward_offset", "offset"),
            "named": F.when(F.col("original").isNotNull(), named),
            "on": F.col("in_force").isNull() | (F.col("in_force") > 0),
        }
    ).drop("in_force")
    found = nearest.with_nearest(
        placed.withColumnRenamed("original", "said"), offered(originals, events, night)
    )
    near = F.coalesce(F.col("at") - F.col("first") <= F.col("largest"), F.lit(False))
    return found.where(~near).withColumnRenamed("said", "original")


def without_original(
    found: DataFrame, originals: DataFrame, events: DataFrame | None, night: int
) -> DataFrame:
    """Of :func:`without_near`: those that are duplicates of nothing, and those of what may be too far away: :func:`orphans` looks at them.

    Args:
        found: As :func:`without_near` has them.
        originals: As there.
        events: As there.
        night: This one's number.
    """
    there = offered(originals, events, night)
    known = found.join(nearest.by_other_ways(found, there), on=PLACE, how="left").where(
        ~F.coalesce("certain", F.lit(False))
    )
    unsure = F.col("ambiguous") | F.col("certain").isNotNull()
    c, o = known.where(unsure).alias("c"), there.alias("o")
    near = ~_same_way() | (F.col("c.at") - F.col("o.at") <= F.col("c.largest"))
    doubtful = c.join(o, on=_is_original() & near, how="left_anti")
    return known.where(~unsure).unionByName(doubtful).drop("certain")


def offered(originals: DataFrame, events: DataFrame | None, night: int) -> DataFrame:
    """The originals as candidates ask for them: each by any that name none, and by those that name it."""
    place = F.struct("partition", "offset")
    return _ring_of(originals, events).select(
        "address", F.col("id_address").alias("part_address"), "id", "lane", "partition", "offset", "timestamp", "home_digest", "heirs",
        "emptied", (F.col("night") < night).alias("before"), F.col("forward_offset").isNotNull().alias("way"),
        F.coalesce("forward_offset", "offset").alias("at"),
        F.explode(F.array(F.when(F.lit(False), place), place)).alias("named"),
    )  # fmt: skip


def orphans(
    found: DataFrame, originals: DataFrame, accepted: DataFrame, events: DataFrame | None, night: int
) -> DataFrame:
    """Of :func:`without_original`: without those of which the ring can still have known an original.

    Between the two the lane accepted at least what came in between by the same way. If that is as much as its ring ever held,
    it had forgotten the first.

    Args:
        found: As :func:`without_original` has them.
        originals: As there.
        accepted: :data:`reconcile.spark.schemas.IDS` of this night and those before, all of them.
        events: As there.
        night: This one's number.
    """
    of_candidate = [*PLACE, "lane", "largest", "way", "at"]
    c, o = found.where("ambiguous").alias("c"), offered(originals, events, night).alias("o")
    unsure = c.join(o, on=_is_original(), how="inner").select(
        *(F.col(f"c.{name}").alias(name) for name in of_candidate), F.col("o.at").alias("first")
    )
    sure = found.where("not ambiguous and first is not null").select(*of_candidate, "first")
    far = sure.unionByName(unsure)
    last = far.groupBy(*of_candidate).agg(F.max("first").alias("first"))
    pair = F.array(
        F.struct(F.col("at"), F.lit(True).alias("later")),
        F.struct(F.col("first").alias("at"), F.lit(False).alias("later")),
    )
    ends = last.select(*PLACE, "lane", "largest", "way", F.inline(pair).alias("at", "later"))
    counted = _counted(ends.withColumn("block", _block()), accepted)
    upto, before = (F.max(F.when(column, F.col("upto"))) for column in (F.col("later"), ~F.col("later")))
    between = counted.groupBy(*PLACE, "largest").agg((upto - before).alias("between"))
    known = between.where(F.col("between") < F.col("largest"))
    return found.join(known.select(*PLACE), on=PLACE, how="left_anti").drop(*_OURS)


def _counted(ends: DataFrame, accepted: DataFrame) -> DataFrame:
    """The ends, with ``upto``: how many IDs were accepted up to there, by the same way. Counted by blocks, and one by one in its own."""
    rows = accepted.select(
        "address",
        "lane",
        F.col("forward_offset").isNotNull().alias("way"),
        F.coalesce("forward_offset", "offset").alias("at"),
    ).withColumn("block", _block())
    blocks = (
        rows.select(*_WAY, "block", F.lit(1).alias("one"))
        .unionByName(ends.select(*_WAY, "block", F.lit(0).alias("one")))
        .groupBy(*_WAY, "block")
        .agg(F.sum("one").alias("number"))
    )
    lower = Window.partitionBy(*_WAY).orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    below = blocks.select(*_WAY, "block", F.coalesce(F.sum("number").over(lower), F.lit(0)).alias("below"))
    in_block = rows.withColumnRenamed("at", "of")
    here = (
        ends.select(*_WAY, "block", "at").distinct()
        .join(in_block, on=[*_WAY, "block"], how="inner")
        .where(F.col("of") <= F.col("at"))
        .groupBy(*_WAY, "at")
        .agg(F.count(F.lit(1)).alias("here"))
    )  # fmt: skip
    known = ends.join(below, on=[*_WAY, "block"], how="inner").join(here, on=[*_WAY, "at"], how="left")
    return known.withColumn("upto", F.col("below") + F.coalesce("here", F.lit(0)))


def _block() -> Column:
    return F.shiftright("at", _BLOCK)


def with_heirs(ids: DataFrame, grown: DataFrame | None) -> DataFrame:
    """The IDs, with ``heirs``: all lanes whose number is, modulo that, the lane's own know it; null = no other does.

    Args:
        ids: :data:`reconcile.spark.schemas.IDS`.
        grown: Of :data:`reconcile.spark.schemas.EVENTS` those that tell of more lanes; their ``before`` is how many there were.
    """
    if grown is None:
        return ids.withColumn("heirs", F.lit(None).cast("bigint"))
    event = F.struct("input_next", "forward_next", "before")
    told = grown.groupBy("address", "lane").agg(F.collect_list(event).alias("told"))

    def came_later(each: Column) -> Column:
        forwarded = F.col("forward_offset").isNotNull()
        return F.when(forwarded, F.col("forward_offset") < each["forward_next"]).otherwise(
            F.col("offset") < each["input_next"]
        )

    counts = F.transform(F.filter("told", came_later), lambda each: each["before"])
    return (
        ids.join(F.broadcast(told), on=["address", "lane"], how="left")
        .withColumn("heirs", F.array_min(counts))
        .drop("told")
    )


def of_units(found: DataFrame) -> DataFrame:
    """Of rows of IDs: those of records, and an envelope for all of its IDs. One of them that is known makes it a duplicate."""
    plain, several = found.where("parts is null"), found.where("parts is not null")
    unit = Window.partitionBy(*RECORD)
    first = F.row_number().over(unit.orderBy("part_number"))
    unknown = (
        several.withColumns({"unknown": F.count(F.lit(1)).over(unit), "first": first})
        .where("unknown = ids and first = 1")
        .withColumns({"part_number": F.lit(0), "fate": F.col("whole")})
    )
    return plain.unionByName(unknown.select(*plain.columns))


def _is_original() -> Column:
    """Of a candidate and what :func:`offered` has."""
    address, part_address, same_id, named = (
        F.col(f"c.{name}").eqNullSafe(F.col(f"o.{name}")) for name in nearest.SAME
    )
    handed_on = F.coalesce(F.col("c.lane") % F.col("o.heirs") == F.col("o.lane"), F.lit(False))
    same_home = F.col("c.home_digest") == F.col("o.home_digest")
    home = (F.col("c.lane") == F.col("o.lane")) | same_home | handed_on
    in_order = F.when(_same_way(), F.col("c.at") > F.col("o.at")).otherwise(
        (F.col("c.partition") != F.col("o.partition")) | (F.col("c.offset") > F.col("o.offset"))
    )
    # What an earlier night accepted came before; places in a forward topic that was created again do not tell it.
    before = F.col("o.before") | in_order
    young = (F.col("c.max_age_ms") == 0) | (
        F.col("c.timestamp") - F.col("o.timestamp") <= F.col("c.max_age_ms")
    )
    kept = (F.col("c.lane") != F.col("o.lane")) | (F.col("c.emptied") == F.col("o.emptied"))
    return address & part_address & same_id & named & home & before & young & kept & F.col("c.on")


def _same_way() -> Column:
    """Whether both came by the same of a lane's two inputs, in whose order it judges."""
    return (F.col("c.lane") == F.col("o.lane")) & (F.col("c.way") == F.col("o.way"))


def _ring_of(rows: DataFrame, events: DataFrame | None) -> DataFrame:
    """The rows, with how often the ring of their lane was ``emptied`` before, and the capacity ``in_force``; null = not told."""
    if events is None:
        return rows.withColumns({"emptied": F.lit(0), "in_force": F.lit(None).cast("bigint")})
    event = F.struct("number", "input_next", "forward_next", "before", "after", "event")
    told = events.groupBy("address", "lane").agg(F.array_sort(F.collect_list(event)).alias("told"))
    with_told = rows.join(F.broadcast(told), on=["address", "lane"], how="left")

    def later(each: Column) -> Column:
        forwarded = F.col("forward_offset").isNotNull()
        return F.when(forwarded, F.col("forward_offset") >= each["forward_next"]).otherwise(
            F.col("offset") >= each["input_next"]
        )

    past, to_come = F.filter("told", later), F.filter("told", lambda each: ~later(each))
    emptied = F.size(F.filter(past, lambda each: empties(each["event"], each["before"], each["after"])))
    in_force = F.coalesce(F.get(F.reverse(past), F.lit(0))["after"], F.get(to_come, F.lit(0))["before"])
    return with_told.withColumns(
        {"emptied": F.when(F.col("told").isNotNull(), emptied).otherwise(0), "in_force": in_force}
    ).drop("told")
