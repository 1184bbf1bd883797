"""Hops of records that came over bridges, and which hops a lane knew.

A **route** is a bridge, a partition of its source, the input partition where its records arrive, and the lane
that judges them. A record is a duplicate, whatever its IDs, if an earlier record of its route has the same
hop or confirms it, or if the same hop came to its lane by another route. Records of one route have the order
of their input. Two routes have no common order.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from reconcile.run.frames.evidence import ONCE, RECORD
from reconcile.run.frames.journal import future_events, past_events, size_between, with_events
from reconcile.spark.columns import of_schema
from reconcile.spark.hops import MALFORMED
from reconcile.spark.schemas import DIVERTED, EVIDENCE, FOLLOWED, HOPS, PASSED, QUARANTINED

OF_HOPS: Final = f"has_input and hop_source is not null and hop_source != '{MALFORMED}'"
"""Condition on evidence: records that came over bridges, and their parts."""
SOURCE: Final = ["address", "lane", "hop_source"]
ROUTE: Final = [*SOURCE, "partition"]
_EPOCHS: Final = ("hop_epoch", "kept_epoch", "sure_epoch")
KEPT_MAX: Final = 65_536  # limit of hops that a lane keeps of one route, whatever the size of its ring
_SINCE: Final[Mapping[str, Sequence[str]]] = {
    "known": _EPOCHS[:1], "kept": _EPOCHS[:2], "sure": _EPOCHS, "ever": (),
}  # fmt: skip
"""Epoch columns that an earlier hop must share to count."""
_PROMISED: Final = ("kept", "sure", "ever")  # variants that judge a hop that is accepted again
_FORGOTTEN: Final = "forgotten"
"""Event of a ring in memory only, now or before: hops are lost; those on disk count once persistent."""


def followed(
    evidence: DataFrame,
    kept: DataFrame | None,
    events: DataFrame | None,
    grown: DataFrame | None = None,
    present: Column | None = None,
) -> DataFrame:
    """Return :data:`reconcile.spark.schemas.FOLLOWED`: what lanes knew of each hop.

    ``evidence`` matches :data:`OF_HOPS`; ``kept`` are hops of earlier runs; ``grown`` are the events that added
    lanes; ``present`` is the ring of the lane that now has the row's hop; None = the ring that judged it.
    """
    rows = evidence.withColumns(
        {"kept": F.lit(False), "accepted": F.coalesce(F.col("whole").isin(*PASSED), F.lit(False))}
    )
    if kept is not None:
        rows = rows.unionByName(kept.withColumn("kept", F.lit(True)), allowMissingColumns=True)
    if grown is not None:
        rows = rows.unionByName(_copied(rows, events, grown))
    # Hops of earlier runs sort first, even if the topic was truncated since.
    rows = rows.withColumn("at", F.when(F.col("kept"), -1).otherwise(F.col("offset")))
    rows = _with_epochs(rows, events).withColumn("ring", F.col("lane"))
    if present is not None:
        rows = rows.withColumn("lane", present)
        moved = F.col("lane") != F.col("ring")
        rows = rows.withColumns({epoch: F.when(moved, 0).otherwise(F.col(epoch)) for epoch in _EPOCHS})
    rows = rows.withColumn("noted", _noted())
    rows = rows.withColumn("lost", F.coalesce("lost", F.lit(False)) if kept is not None else F.lit(False))
    rows = rows.withColumns(_elsewhere([*SOURCE, "hop_epoch", "hop_offset"]))
    rows = rows.withColumn("confirmed_route", F.max("hop_confirmed").over(Window.partitionBy(*ROUTE)))
    rows = rows.withColumns(_same("known", F.col("noted"))).withColumns(_confirmed("known"))
    for name in _PROMISED:
        rows = rows.withColumns(_same(name, _promised())).withColumns(_confirmed(name))
    rows = rows.withColumns(_highest_and_least())
    known = (
        F.col("same_known").isNotNull()
        | (F.col("hop_offset") < F.col("confirmed_known"))
        | F.col("elsewhere")
    )
    ignored = F.col("whole").isNull() | ((F.col("whole") == DIVERTED) & F.col("original").isNull())
    resent = F.coalesce(known & ignored & _on() & ~F.col("waiting"), F.lit(False))
    return rows.select(*of_schema(FOLLOWED, {"resent": resent}))


def _copied(rows: DataFrame, events: DataFrame | None, grown: DataFrame) -> DataFrame:
    """Return a row for each hop and new lane that got a copy of it, as if an earlier run had kept the row.

    A growth copies the hop memory of lane p to new lanes that equal p modulo the former number of lanes. The
    offset of such a row is -1, so all events of the new lane come later. A row without an output or a place
    in an earlier run does not show that the lane knew the hop.
    """
    both = grown if events is None else grown.unionByName(events.where(F.coalesce("of_hops", F.lit(False))))
    known = with_events(rows.where(_shown() & F.col("hop_offset").isNotNull()), both)
    known = known.withColumn("events", future_events())
    forgotten = F.get(F.filter("events", _of_hops), F.lit(0))["number"]
    growths = F.filter(
        "events",
        lambda event: ~_of_hops(event) & (forgotten.isNull() | (event["number"] < forgotten)),
    )
    grew = known.withColumns(
        {
            "before": F.array_min(F.transform(growths, lambda event: event["before"])),
            "after": F.array_max(F.transform(growths, lambda event: event["after"])),
        }
    ).where("before is not null")
    copied = grew.withColumn("lane", F.explode(F.expr("sequence(lane + before, after - 1, before)")))
    nowhere = {
        "kept": F.lit(True),
        "lane": F.col("lane").cast("int"),
        "offset": F.lit(-1).cast("bigint"),
        "forward_offset": F.lit(None).cast("bigint"),
    }
    return copied.withColumns(nowhere).select(*rows.columns)


def _shown() -> Column:
    """Return whether an output or an earlier run shows that the hop came."""
    return F.col("kept") | F.coalesce(F.col("whole").isin(*PASSED, DIVERTED, QUARANTINED), F.lit(False))


def _on() -> Column:
    return F.coalesce(F.col("capacity") > 0, F.lit(True))


def _noted() -> Column:
    """Return whether the lane recorded the hop. Lanes also record hops of refused records."""
    return F.col("kept") | (~F.col("waiting") & _on())


def _with_epochs(rows: DataFrame, events: DataFrame | None) -> DataFrame:
    """Add the ring's ``capacity``, and how often the lane forgot hops before the row.

    ``hop_epoch`` counts orders to forget all hops, ``kept_epoch`` rings in memory only, and ``sure_epoch``
    changes of the size. The lane knows kept hops of an input that was created again, but
    the last two epochs promise nothing about them.
    """
    if events is None:
        found = rows.withColumns(
            {**{epoch: F.lit(0) for epoch in _EPOCHS}, "capacity": F.lit(None).cast("bigint")}
        )
    else:
        past, future = past_events(), future_events()
        sizes = size_between(*(F.filter(part, lambda event: ~_of_hops(event)) for part in (past, future)))
        known = F.col("events").isNotNull()
        epochs = {
            name: F.when(known, F.size(F.filter(past, forgets))).otherwise(0)
            for name, forgets in zip(_EPOCHS, (_of_hops, _in_memory, _resized), strict=True)
        }
        found = with_events(rows, events).withColumns({**epochs, "capacity": sizes}).drop("events")
    gone = F.col("kept") & (F.col("offset") < 0)
    return found.withColumns({epoch: F.when(gone, -1).otherwise(F.col(epoch)) for epoch in _EPOCHS[1:]})


def _of_hops(event: Column) -> Column:
    return F.coalesce(event["of_hops"], F.lit(False))


def _in_memory(event: Column) -> Column:
    return ~_of_hops(event) & F.coalesce(event["event"] == _FORGOTTEN, F.lit(False))


def _resized(event: Column) -> Column:
    return ~_of_hops(event) & (event["before"] != event["after"])


def _elsewhere(same_hop: list[str]) -> dict[str, Column]:
    """Return whether an output shows that the hop came to the lane from another input partition too."""
    window = Window.partitionBy(*same_hop)
    there = F.when(_shown() & F.col("noted"), F.col("partition"))
    first, last = F.min(there).over(window), F.max(there).over(window)
    found = F.coalesce((first != F.col("partition")) | (last != F.col("partition")), F.lit(False))
    return {"elsewhere": found & F.col("hop_offset").isNotNull()}


def _same(name: str, noted: Column) -> dict[str, Column]:
    """Find an earlier record of the route with the same hop. An envelope's parts do not count."""
    earlier = _earlier(Window.partitionBy(*ROUTE, *_SINCE[name], "hop_offset"))
    there = noted & F.col("hop_offset").isNotNull()
    return {f"same_{name}": F.min(F.when(there, F.col("offset"))).over(earlier)}


def _confirmed(name: str) -> dict[str, Column]:
    earlier = _earlier(Window.partitionBy(*ROUTE, *_SINCE[name]))
    return {f"confirmed_{name}": F.max(F.when(F.col("noted"), F.col("hop_confirmed"))).over(earlier)}


def _promised() -> Column:
    """Return whether the lane knows the hop. A lane does not know the hop of a lost input."""
    return F.col("noted") & ~F.col("lost")


def _highest_and_least() -> dict[str, Column]:
    """Return the route's highest earlier hop, and whether this run accepted a lower hop earlier."""
    before = _earlier(Window.partitionBy(*ROUTE))
    new = F.col("accepted") & F.col("noted") & ~F.col("kept")
    return {
        "highest": F.max(F.when(F.col("noted"), F.col("hop_offset"))).over(before),
        "after_new": F.coalesce(
            F.min(F.when(new, F.col("hop_offset"))).over(before) < F.col("hop_offset"), F.lit(False)
        ),
    }


def _earlier(window: WindowSpec) -> WindowSpec:
    return window.orderBy("at").rangeBetween(Window.unboundedPreceding, -1)


def lost(followed: DataFrame, orphans: DataFrame, dropping: Column) -> DataFrame:
    """Return the places of lost inputs of this run.

    ``orphans`` are inputs with IDs that were not accepted and repeat nothing. ``dropping``: others without an
    output may be duplicates by their IDs.
    """
    missing = followed.where(
        "not kept and part_number = 0 and whole is null and not waiting and not resent"
    ).select(*RECORD, ((F.col("ids") == 0) | ~dropping).alias("sure"))
    alone = missing.where("not sure").join(orphans.select(*RECORD).distinct(), on=RECORD, how="left_semi")
    return missing.where("sure").unionByName(alone).select(*RECORD)


def without_lost(followed: DataFrame, lost: DataFrame) -> DataFrame:
    """Mark hops of lost inputs as not known, since a lane may accept such a hop later."""
    marked = followed.join(lost.distinct().withColumn("gone", F.lit(True)), on=RECORD, how="left")
    rows = marked.withColumns(
        {
            "lost": F.col("lost") | (~F.col("kept") & F.coalesce("gone", F.lit(False))),
            "at": F.when(F.col("kept"), -1).otherwise(F.col("offset")),
            "noted": _noted(),
        }
    )
    for name in _PROMISED:
        rows = rows.withColumns(_same(name, _promised()))
    return rows.select(*FOLLOWED.names)


def evidence_of(followed: DataFrame) -> DataFrame:
    """Return the rows of this run as evidence."""
    return followed.where(~F.col("kept")).withColumn("lane", F.col("ring")).select(*EVIDENCE.names)


def kept_on(followed: DataFrame, most: Column) -> DataFrame:
    """Return :data:`reconcile.spark.schemas.HOPS`, by which later runs recognize a resend.

    For each route they hold the highest confirmed hop since its lane last forgot, and the highest ``most``
    hops above it. A lane keeps exactly these.
    """
    on = "(capacity is null or capacity > 0)"
    judged = f"kept or ({ONCE} and not waiting and {on})"
    latest = F.max("hop_epoch").over(Window.partitionBy(*ROUTE))
    rows = followed.where(judged).withColumn("latest", latest).where("hop_epoch = latest")
    rows = rows.withColumn("floor", F.max("hop_confirmed").over(Window.partitionBy(*ROUTE)))
    place = F.struct("offset", "forward_offset")
    floors = rows.groupBy(*ROUTE).agg(
        F.max("floor").alias("hop_confirmed"),
        F.max_by(place, F.struct("hop_confirmed", "offset")).alias("place"),
    )
    above = (
        rows.where("hop_offset >= floor")
        .groupBy(*ROUTE, "hop_offset")
        .agg(F.min(place).alias("place"), F.max("accepted").alias("accepted"), F.min("lost").alias("lost"))
    )
    rank = F.row_number().over(Window.partitionBy(*ROUTE).orderBy(F.desc("hop_offset")))
    highest = above.withColumn("rank", rank).where(F.col("rank") <= most)
    both = highest.unionByName(floors, allowMissingColumns=True)
    found = both.withColumns({name: F.col(f"place.{name}") for name in ("offset", "forward_offset")})
    return found.select(*of_schema(HOPS, {}))
