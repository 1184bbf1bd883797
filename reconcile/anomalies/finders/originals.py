"""Finds originals of inputs that were not accepted: IDs that the ring of their lane still knew."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconcile.anomalies.finders import nearest_originals
from reconcile.run.frames.evidence import FIRST, PLACE, RECORD, route
from reconcile.run.frames.journal import (
    emptied_before,
    future_events,
    past_events,
    size_between,
    with_events,
)
from reconcile.spark.columns import has_no_value
from reconcile.spark.schemas import EVIDENCE, REPEATS

REPEATING: Final = (
    f"{FIRST} and id is not null and not resent and ((whole is null and not waiting) or whole in {REPEATS})"
)
"""Condition on evidence: not accepted, and its ID may make it a duplicate."""
_ROUTE: Final = ["address", "lane", "route"]
_BLOCK: Final = 10  # bits of an offset that count within its block
_KNOWING: Final = "knowing"
_OURS: Final = (
    "max_age_ms", "largest", "emptied", "on", "named", "route", "at", "first", "first_sequence", "ambiguous", "head",
)  # fmt: skip


def without_near(
    candidates: DataFrame, originals: DataFrame, rules: DataFrame, events: DataFrame | None, run: int
) -> DataFrame:
    """Return candidates that no near, earlier original on the same route explains.

    An original is another input with the same ID that the candidate's ring can know. It was accepted in the
    same lane, in a lane that copied its IDs to it, or in the home lane of the same group. It came earlier and
    is young enough, and the ring was neither emptied in between nor off. If a duplicate names its original,
    only that one counts.

    Args:
        candidates: :data:`reconcile.spark.schemas.EVIDENCE`, with ``head`` if rings gave sequence numbers.
        originals: :data:`reconcile.spark.schemas.IDS` of this run and the runs before, with
            :func:`with_heirs`.
        rules: :data:`reconcile.spark.schemas.RULES`.
        events: :data:`reconcile.spark.schemas.EVENTS`; None = no events.
        run: Number of this run.
    """
    limits = F.broadcast(rules.select("address", "max_age_ms", "largest"))
    mine = _with_ring(candidates.join(limits, on="address", how="left"), events)
    if "head" not in mine.columns:
        mine = mine.withColumn("head", F.lit(None).cast("bigint"))
    named = F.struct(F.col("original_partition").alias("partition"), F.col("original_offset").alias("offset"))
    placed = mine.withColumns(
        {
            "route": route(),
            "at": F.coalesce("forward_offset", "offset"),
            "named": F.when(F.col("original").isNotNull(), named),
            "on": F.col("in_force").isNull() | (F.col("in_force") > 0),
        }
    ).drop("in_force")
    found = nearest_originals.with_nearest(
        placed.withColumnRenamed("original", "said"), offered(originals, events, run)
    )
    near = F.coalesce(F.col("at") - F.col("first") <= F.col("largest"), F.lit(False))
    return found.where(~near | nearest_originals.overrun("", "first_sequence")).withColumnRenamed(
        "said", "original"
    )


def without_original(found: DataFrame, originals: DataFrame, events: DataFrame | None, run: int) -> DataFrame:
    """Remove rows of :func:`without_near` that an original on another route explains.

    The remaining rows repeat nothing, or repeat an ID that may be too far away: see :func:`orphans`.
    """
    there = offered(originals, events, run)
    known = found.join(nearest_originals.by_other_routes(found, there), on=PLACE, how="left").where(
        ~F.coalesce("certain", F.lit(False))
    )
    unsure = F.col("ambiguous") | F.col("certain").isNotNull()
    c, o = known.where(unsure).alias("c"), there.alias("o")
    near = ~_same_route() | (F.col("c.at") - F.col("o.at") <= F.col("c.largest"))
    doubtful = c.join(o, on=_is_original() & near, how="left_anti")
    return known.where(~unsure).unionByName(doubtful).drop("certain")


def offered(originals: DataFrame, events: DataFrame | None, run: int) -> DataFrame:
    """Return each original twice: for candidates without a named original, and for those that name it."""
    place = F.struct("partition", "offset")
    rows = _with_ring(originals, events)
    if _KNOWING in rows.columns:
        # Events that emptied a former ring do not count here: a ring that merged its IDs may still know them.
        rows = rows.withColumn("ring", F.explode(_KNOWING)).withColumns(
            {
                "emptied": F.when(F.col("ring") == F.col("lane"), F.col("emptied")).otherwise(0),
                "lane": F.col("ring"),
                "sequence": F.when(F.col("ring") == F.col("lane"), F.col("sequence")),
            }
        )
    return rows.select(
        "address", F.col("id_address").alias("part_address"), "id", "lane", "partition", "offset", "timestamp", "home_digest", "heirs",
        "emptied", (F.col("run") < run).alias("before"), route().alias("route"), "sequence",
        F.coalesce("forward_offset", "offset").alias("at"),
        F.explode(F.array(F.when(F.lit(False), place), place)).alias("named"),
    )  # fmt: skip


def orphans(
    found: DataFrame, originals: DataFrame, accepted: DataFrame, events: DataFrame | None, run: int
) -> DataFrame:
    """Return rows of :func:`without_original` whose ring had overwritten every original.

    The IDs accepted between the two are at least those on the same route, or as many as their sequence
    numbers prove. If they are as many as the largest ring holds, the original is overwritten. ``accepted``
    are all :data:`reconcile.spark.schemas.IDS`.
    """
    of_candidate = [*PLACE, "lane", "largest", "route", "at"]
    c, o = found.where("ambiguous").alias("c"), offered(originals, events, run).alias("o")
    unsure = c.join(o, on=_is_original(), how="inner").select(
        *(F.col(f"c.{name}").alias(name) for name in of_candidate), F.col("o.at").alias("first")
    )
    within = ~nearest_originals.overrun("", "first_sequence")
    sure = found.where("not ambiguous and first is not null").where(within).select(*of_candidate, "first")
    far = sure.unionByName(unsure)
    last = far.groupBy(*of_candidate).agg(F.max("first").alias("first"))
    pair = F.array(
        F.struct(F.col("at"), F.lit(True).alias("later")),
        F.struct(F.col("first").alias("at"), F.lit(False).alias("later")),
    )
    ends = last.select(*PLACE, "lane", "largest", "route", F.inline(pair).alias("at", "later"))
    counted = _counted(ends.withColumn("block", _block()), accepted)
    upto, before = (F.max(F.when(column, F.col("upto"))) for column in (F.col("later"), ~F.col("later")))
    between = counted.groupBy(*PLACE, "largest").agg((upto - before).alias("between"))
    known = between.where(F.col("between") < F.col("largest"))
    return found.join(known.select(*PLACE), on=PLACE, how="left_anti").drop(*_OURS)


def _counted(ends: DataFrame, accepted: DataFrame) -> DataFrame:
    """Add ``upto``: IDs accepted on the route up to each end, by whole blocks and within the last."""
    rows = accepted.select(
        "address",
        "lane",
        route().alias("route"),
        F.coalesce("forward_offset", "offset").alias("at"),
    ).withColumn("block", _block())
    blocks = (
        rows.select(*_ROUTE, "block", F.lit(1).alias("one"))
        .unionByName(ends.select(*_ROUTE, "block", F.lit(0).alias("one")))
        .groupBy(*_ROUTE, "block")
        .agg(F.sum("one").alias("number"))
    )
    lower = Window.partitionBy(*_ROUTE).orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    below = blocks.select(*_ROUTE, "block", F.coalesce(F.sum("number").over(lower), F.lit(0)).alias("below"))
    in_block = rows.withColumnRenamed("at", "of")
    here = (
        ends.select(*_ROUTE, "block", "at").distinct()
        .join(in_block, on=[*_ROUTE, "block"], how="inner")
        .where(F.col("of") <= F.col("at"))
        .groupBy(*_ROUTE, "at")
        .agg(F.count(F.lit(1)).alias("here"))
    )  # fmt: skip
    known = ends.join(below, on=[*_ROUTE, "block"], how="inner").join(here, on=[*_ROUTE, "at"], how="left")
    return known.withColumn("upto", F.col("below") + F.coalesce("here", F.lit(0)))


def _block() -> Column:
    return F.shiftright("at", _BLOCK)


def with_heirs(ids: DataFrame, grown: DataFrame | None, knowing: Column | None = None) -> DataFrame:
    """Add ``heirs``: a former number of lanes, or null; lanes equal to the ID's modulo it know the ID too.

    ``grown`` are the events that added lanes, with the former count as ``before``. ``knowing`` are rings that
    may know an ID; None = lanes were never regrouped.
    """
    if knowing is not None:
        ids = ids.withColumn(_KNOWING, knowing)
    if grown is None:
        return ids.withColumn("heirs", F.lit(None).cast("bigint"))
    counts = F.transform(future_events(), lambda event: event["before"])
    return with_events(ids, grown).withColumn("heirs", F.array_min(counts)).drop("events")


def conflicts(candidates: DataFrame, originals: DataFrame, orphans: DataFrame, rules: DataFrame) -> DataFrame:
    """Return candidates without an output that repeat an ID with another value, if conflicts are diverted.

    They get ``value_changed``. Rings do not know the values of envelopes and parts, and treat a null value as
    empty.
    """
    diverting = F.broadcast(rules.where("diverts_conflicts and not divert").select("address"))
    plain = candidates.where("fate is null and parts is null").where(~has_no_value("value_digest"))
    of_unit = (F.col("part_number") > 0) | F.col("group_digest").isNull()
    same = F.col("c.address") == F.col("o.address"), F.col("c.id") == F.col("o.id")
    several = originals.groupBy("address", "id").agg(
        F.collect_set("value_digest").alias("values"), F.max(of_unit | F.col("value_digest").isNull()).alias("unsure")
    )  # fmt: skip
    found = (
        plain.join(diverting, on="address", how="left_semi").alias("c")
        .join(several.where("not unsure").alias("o"), on=[*same], how="inner")
        .where(~F.array_contains("o.values", F.col("c.value_digest")))
        .select("c.*")
    )  # fmt: skip
    alone = found.join(orphans.select(*PLACE), on=PLACE, how="left_anti")
    return alone.withColumn("value_changed", F.lit(True)).select(*EVIDENCE.names)


def of_units(found: DataFrame) -> DataFrame:
    """Return plain records, and once each envelope without a known ID: one makes it a duplicate."""
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
    """Return the condition that ``o`` of :func:`offered` is an original of the candidate ``c``."""
    address, part_address, same_id, named = (
        F.col(f"c.{name}").eqNullSafe(F.col(f"o.{name}")) for name in nearest_originals.SAME
    )
    handed_on = F.coalesce(F.col("c.lane") % F.col("o.heirs") == F.col("o.lane"), F.lit(False))
    same_home = F.col("c.home_digest") == F.col("o.home_digest")
    home = (F.col("c.lane") == F.col("o.lane")) | same_home | handed_on
    in_order = F.when(_same_route(), F.col("c.at") > F.col("o.at")).otherwise(
        (F.col("c.partition") != F.col("o.partition")) | (F.col("c.offset") > F.col("o.offset"))
    )
    # A forward topic that was created again counts offsets from 0, so they have no order with earlier ones.
    before = F.col("o.before") | in_order
    young = (F.col("c.max_age_ms") == 0) | (
        F.col("c.timestamp") - F.col("o.timestamp") <= F.col("c.max_age_ms")
    )
    same_ring = (F.col("c.emptied") == F.col("o.emptied")) & ~nearest_originals.overrun("c.", "o.sequence")
    kept = (F.col("c.lane") != F.col("o.lane")) | same_ring
    return address & part_address & same_id & named & home & before & young & kept & F.col("c.on")


def _same_route() -> Column:
    """Return whether both came on one route of one lane, which judges them in offset order."""
    return (F.col("c.lane") == F.col("o.lane")) & (F.col("c.route") == F.col("o.route"))


def _with_ring(rows: DataFrame, events: DataFrame | None) -> DataFrame:
    """Add ``emptied``, how often the ring was emptied before, and its size ``in_force``, or null."""
    found = emptied_before(rows, events)
    if events is None:
        return found.withColumn("in_force", F.lit(None).cast("bigint"))
    return found.withColumn("in_force", size_between(past_events(), future_events())).drop("events")
