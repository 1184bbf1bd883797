"""What an input that is not accepted can be a duplicate of: an ID that the ring of its lane still knew."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from reconcile.night.evidence import FIRST, PLACE, RECORD
from reconcile.night.journal import empties
from reconcile.spark.schemas import DIVERTED

REPEATING: Final = (
    f"{FIRST} and id is not null and not resent and ((whole is null and not waiting) or whole = {DIVERTED})"
)
"""Of the evidence: what is not accepted, and may be a duplicate by its ID."""
_WAY: Final = ["address", "lane", "way"]
_BLOCK: Final = 10
"""So many bits of a place are one in its block."""
_OURS: Final = ("max_age_ms", "largest", "emptied", "in_force")


def without_original(
    candidates: DataFrame, originals: DataFrame, rules: DataFrame, events: DataFrame | None, night: int
) -> DataFrame:
    """Those that are duplicates of nothing, and those of what may be too far away: :func:`orphans` looks at them.

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
    mine = candidates.join(limits, on="address", how="left")
    c, o = _ring_of(mine, events).alias("c"), _ring_of(originals, events).alias("o")
    near = ~_same_way() | (_place("c") - _place("o") <= F.col("c.largest"))
    return c.join(o, on=_is_original(night) & near, how="left_anti")


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
    c, o = found.alias("c"), _ring_of(originals, events).alias("o")
    far = c.join(o, on=_is_original(night), how="inner").select(
        *(F.col(f"c.{each}").alias(each) for each in (*PLACE, "lane", "largest")),
        F.col("c.forward_offset").isNotNull().alias("way"),
        _place("c").alias("at"),
        _place("o").alias("first"),
    )
    last = far.groupBy(*PLACE, "lane", "largest", "way", "at").agg(F.max("first").alias("first"))
    pair = F.array(
        F.struct(F.col("at"), F.lit(True).alias("later")),
        F.struct(F.col("first").alias("at"), F.lit(False).alias("later")),
    )
    ends = last.select(*PLACE, "lane", "largest", "way", F.inline(pair).alias("at", "later"))
    counted = _counted(ends.withColumn("block", _block()), accepted)
    upto, before = (F.max(F.when(each, F.col("upto"))) for each in (F.col("later"), ~F.col("later")))
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


def _is_original(night: int) -> Column:
    same_ring = F.col("c.address") == F.col("o.address")
    same_id = (
        same_ring & (F.col("c.part_address") == F.col("o.id_address")) & (F.col("c.id") == F.col("o.id"))
    )
    handed_on = F.coalesce(F.col("c.lane") % F.col("o.heirs") == F.col("o.lane"), F.lit(False))
    same_home = F.col("c.home_digest") == F.col("o.home_digest")
    home = (F.col("c.lane") == F.col("o.lane")) | same_home | handed_on
    in_order = F.when(_same_way(), _place("c") > _place("o")).otherwise(
        (F.col("c.partition") != F.col("o.partition")) | (F.col("c.offset") > F.col("o.offset"))
    )
    # What an earlier night accepted came before; places in a forward topic that was created again do not tell it.
    before = (F.col("o.night") < night) | in_order
    young = (F.col("c.max_age_ms") == 0) | (
        F.col("c.timestamp") - F.col("o.timestamp") <= F.col("c.max_age_ms")
    )
    named = F.col("c.original").isNull() | (
        (F.col("c.original_partition") == F.col("o.partition"))
        & (F.col("c.original_offset") == F.col("o.offset"))
    )
    kept = (F.col("c.lane") != F.col("o.lane")) | (F.col("c.emptied") == F.col("o.emptied"))
    on = F.col("c.in_force").isNull() | (F.col("c.in_force") > 0)
    return same_id & home & before & young & kept & on & F.coalesce(named, F.lit(False))


def _same_way() -> Column:
    """Whether both came by the same of a lane's two inputs, in whose order it judges."""
    ways = F.col("c.forward_offset").isNotNull() == F.col("o.forward_offset").isNotNull()
    return (F.col("c.lane") == F.col("o.lane")) & ways


def _place(side: str) -> Column:
    """In that input."""
    return F.coalesce(f"{side}.forward_offset", f"{side}.offset")


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
