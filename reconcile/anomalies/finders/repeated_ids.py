"""Finds FORGOTTEN, OVERRUN and CROSS-LANE: IDs that were accepted more than once.

A ring of size N knows an ID while its lane has accepted fewer than N other IDs after it. With ``id_min_age``,
it keeps more than ``id_cache_size`` IDs only while they are young compared with the newest record. A lane
reads several inputs, its own partitions and the forward topic, each in order. If an address sets ``lanes``,
accepted records have the sequence number of their ID, and the difference of two numbers gives the IDs in
between. Other records do not show how the lane interleaved its inputs. But a lane writes one transaction
after the other, so each output partition has its records in the lane's order. That gives an upper bound of
the IDs in between. An ID is FORGOTTEN only if this upper bound lies within the promise.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconcile.anomalies.finders.ring_ranks import CAME, INPUT, routed
from reconcile.anomalies.names import Anomaly, rows, text
from reconcile.run.frames.evidence import FORWARDED_ROUTE
from reconcile.run.frames.journal import empties, judged_before
from reconcile.spark.columns import constant

_ID = ["id_address", "id"]
_RING = ["address", "lane"]
_CROSSED: Final = "accepted in another lane too"


def repeated(ids: DataFrame, run: int, settled: Column | None = None) -> DataFrame:
    """Return :data:`reconcile.spark.schemas.IDS` accepted several times, at least once in this run.

    ``settled``: the ring that now has all IDs of the row's ring; None = no lanes were regrouped.
    """
    this_run = F.max((F.col("run") == run).cast("int"))
    several = ids.groupBy(*_ID).agg(F.count(F.lit(1)).alias("times"), this_run.alias("this_run"))
    chosen = several.where("times > 1 and this_run = 1").select(*_ID)
    rows_of = ids.join(chosen, on=_ID, how="left_semi")
    # All records of a group have one home, on any route.
    home = Window.partitionBy(*_ID, "address", "home_digest")
    ring = F.col("lane") if settled is None else settled
    return rows_of.withColumn("home", F.min(ring).over(home))


def cross_lane(repeated: DataFrame, run: int, rules: DataFrame, input_topics: Sequence[str]) -> DataFrame:
    """Return a row for each ID that another lane accepted in this run, with another group or transaction key.

    OVERRUN if the ID was older than ``id_max_age``. Two lanes have an order only between runs.
    """
    place = ["partition", "offset", "part_number", "out_address", "out_partition", "out_offset", "address"]
    ordered = ["partition", "offset", "out_partition", "out_offset", "timestamp", "home"]
    first = repeated.groupBy(*_ID, "address", "home").agg(
        F.min("run").alias("first_run"),
        F.min(F.struct("run", *ordered, "address", "part_number", "out_address")).alias("first"),
    )
    homes = first.groupBy(*_ID).agg(
        F.count(F.lit(1)).alias("homes"),
        F.max("first_run").alias("last_run"),
        F.min("first").alias("one"),
        F.max("first").alias("other"),
    )
    found = homes.where((F.col("homes") > 1) & (F.col("last_run") == run))
    elsewhere = repeated.join(found, on=_ID, how="inner").where(
        (F.col("home") != F.col("other.home")) | (F.col("address") != F.col("other.address"))
    )
    apart = F.col("other.timestamp") - F.col("timestamp")
    known = F.col("run") < F.col("other.run")
    nearest = elsewhere.groupBy(*_ID).agg(
        F.first("one").alias("one"),
        F.first("other").alias("other"),
        F.min(F.when(known, apart).otherwise(F.abs(apart))).alias("apart"),
    )
    aged = (F.col("max_age_ms") > 0) & (F.col("apart") > F.col("max_age_ms"))
    detail = F.when(aged, f"{_CROSSED}, when its ID no longer counted: id_max_age").otherwise(
        f"{_CROSSED}: the two have different groups"
    )
    same = F.col("one.address") == F.col("other.address")
    topics = constant(input_topics, "array<string>")
    topic = F.get(topics, F.col("one.address"))
    away = text(", as ", topic, "/", F.col("one.partition"), "/", F.col("one.offset"))
    placed = nearest.withColumns({name: F.col(f"other.{name}") for name in place})
    return rows(
        placed.join(F.broadcast(rules.select("address", "max_age_ms")), on="address", how="inner"),
        Anomaly.CROSS_LANE,
        text(detail, F.when(same, "").otherwise(away)),
        anomaly=F.when(aged, Anomaly.OVERRUN.value).otherwise(Anomaly.CROSS_LANE.value),
        other_partition=F.when(same, F.col("one.partition")),
        other_offset=F.when(same, F.col("one.offset")),
    )


def pairs(repeated: DataFrame, ranks: DataFrame, run: int) -> DataFrame:
    """Pair each ID of this run with the nearest earlier acceptance on each route (columns ``a_``).

    A lane reads several inputs, or *routes*: its partitions of the input topic, and its partition of the
    forward topic. On a route, offsets show the order of acceptance. Output partitions do not, because a
    message without a key may go to any of them. The intervals of
    :func:`~reconcile.anomalies.finders.ring_ranks.ranks` are in order on each route. After a sort by the
    middle of the intervals, the nearest acceptance of a route is its last one before the ID. If IDs have
    sequence numbers, these give the order.
    """
    placed = (
        routed(repeated.drop("sequence"))
        .join(ranks, on=INPUT, how="left")
        .withColumn("middle", F.expr("before - after"))
    )
    earlier = [
        "partition", "offset", "part_number", "forward_offset", "timestamp", "out_address", "out_partition", "out_offset",
        "lane", "run", "route", "before", "after", "total", "period", "sequence", "newest", "home_digest",
    ]  # fmt: skip
    row = F.struct(*earlier)
    home = [*_ID, "address", "home"]
    in_order = Window.partitionBy(*home).orderBy("lane", "period", "turn", "middle", *CAME)
    until = in_order.rowsBetween(Window.unboundedPreceding, -1)
    forwarded = F.col("route") == FORWARDED_ROUTE
    candidates = F.array(
        F.last(F.when(forwarded, row), ignorenulls=True).over(until),
        F.last(F.when(~forwarded, row), ignorenulls=True).over(until),
    )
    found = placed.withColumn("candidates", F.array_compact(candidates))
    beside = found.where(F.col("run") == run).select("*", F.explode("candidates").alias("a"))
    return beside.select(*placed.columns, *(F.col(f"a.{name}").alias(f"a_{name}") for name in earlier)).drop(
        "middle"
    )


def between(pairs: DataFrame) -> DataFrame:
    """Add ``between``, ``order`` and ``exact`` to pairs.

    ``between`` is an upper bound of the IDs accepted between the two. For two lanes it counts all IDs of the
    first lane after the first ID, and of the second lane before the second. ``order`` is 1 if the earlier ID
    was certainly accepted first, -1 if the later one was, and 0 if evidence does not show it. ``exact``:
    sequence numbers give the result, so evidence of the IDs in between is not needed.
    """
    one = F.col("lane") == F.col("a_lane")
    exact = one & (F.col("period") == F.col("a_period")) & (F.col("sequence") != F.col("a_sequence"))
    both = F.when(one, F.col("total")).otherwise(F.col("total") + F.col("a_total") + F.col("passed"))
    forth = both - 2 - F.col("a_before") - F.col("after")
    back = both - 2 - F.col("before") - F.col("a_after")
    shown = (
        F.col("witness")
        & (F.col("out_address") == F.col("a_out_address"))
        & (F.col("out_partition") == F.col("a_out_partition"))
    )
    by_output = F.when(F.col("a_out_offset") > F.col("out_offset"), -1).otherwise(1)
    order = (
        F.when(~one, (F.col("regrouped") | (F.col("a_run") < F.col("run"))).cast("int"))
        .when(exact, F.when(F.col("sequence") > F.col("a_sequence"), 1).otherwise(-1))
        .when(F.col("route") == F.col("a_route"), 1)
        .when(shown, by_output)
        .otherwise(0)
    )
    ordered = pairs.withColumns({"order": order, "exact": F.coalesce(exact, F.lit(False))})
    apart = (
        F.when(F.col("order") > 0, forth).when(F.col("order") < 0, back).otherwise(F.greatest(forth, back))
    )
    # Spark's greatest ignores null, so an unknown number must stay null explicitly.
    return ordered.withColumn("between", F.when(apart.isNotNull(), F.greatest(F.lit(0), apart)))


def promised(pairs: DataFrame, events: DataFrame | None, rules: DataFrame, capacity: Column) -> DataFrame:
    """Add the ``capacity`` in force, and whether the ring ``forgot`` IDs at an event.

    A ring forgets if it is cleared, switched off or opened in memory only. If its size changed in between,
    the smallest counts; without events it is ``capacity``. The second lane does not know the first ID if
    another partitioner ``moved`` the home, or if the address was ``renamed``.

    An event lies between two IDs of a lane if the lane judged one before it and the other after it. All
    events of a successor lane lie after the first ID, and all events of a lane that passed on its IDs lie
    before the second ID.
    """
    known_rules = ("address", "max_age_ms", "min_age_ms", "size", "whole_since", "renamed")
    until = F.col("moved").alias("until")
    limits = (
        pairs.join(F.broadcast(rules.select(*known_rules, until)), on="address", how="inner")
        .withColumn("capacity", capacity)
        .withColumn("moved", (F.col("lane") != F.col("a_lane")) & (F.col("a_run") <= F.col("until")))
        .withColumn("renamed", F.col("a_run") <= F.col("renamed"))
    )
    if events is None:
        return limits.withColumn("forgot", F.lit(False))
    e, p = events.alias("e"), limits.alias("p")
    joined = p.join(
        F.broadcast(e),
        on=(F.col("p.address") == F.col("e.address")) & F.array_contains("p.lanes", F.col("e.lane")),
        how="left",
    )
    known = F.col("e.number").isNotNull()
    of_first, of_second = F.col("e.lane") == F.col("p.a_lane"), F.col("e.lane") == F.col("p.lane")
    a_before = known & (~of_first | judged_before(_of_event, "p.a_"))
    b_before = known & of_second & judged_before(_of_event, "p.")
    key = ["address", "partition", "offset", "part_number", "a_partition", "a_offset", "a_part_number"]
    between = (
        F.when(F.col("p.order") > 0, a_before & ~b_before)
        .when(F.col("p.order") < 0, b_before & ~a_before)
        .otherwise(known & (a_before != b_before))
    )
    least = F.least("e.before", "e.after")
    forgets = empties(F.col("e.event"), F.col("e.before"), F.col("e.after")) | (least == 0)
    seen = joined.groupBy(*(F.col(f"p.{name}") for name in key)).agg(
        F.max(between & forgets).alias("forgot"),
        F.max_by("e.after", F.when(known & ~a_before, F.col("e.number"))).alias("last"),
        F.min(F.when(between, least)).alias("least"),
        F.min_by("e.before", F.when(b_before, F.col("e.number"))).alias("next"),
    )
    return (
        limits.join(seen, on=key, how="inner")
        .withColumn("capacity", F.coalesce(F.least("last", "least", "next"), "capacity"))
        .drop("last", "least", "next")
    )


def _of_event(name: str) -> Column:
    return F.col(f"e.{name}")


def remembered(pairs: DataFrame) -> DataFrame:
    """Return FORGOTTEN within the promise, OVERRUN beyond it, GAP if evidence is deleted.

    A ring that is off promises nothing. If an input has several pairs, the worst counts. Pairs without
    evidence of their order count in either order. IDs that two rings accepted before a third ring merged both
    are CROSS-LANE, one row for each ID.
    """
    apart = F.col("timestamp") - F.col("a_timestamp")
    older = F.when(F.col("order") > 0, apart).when(F.col("order") < 0, -apart).otherwise(F.abs(apart))
    aged = (F.col("max_age_ms") > 0) & (older > F.col("max_age_ms"))
    # The age counts up to the newest record that the lane can have had: a late message does not make an
    # expired ID young again.
    since = F.greatest("newest", "a_newest", "timestamp", "a_timestamp") - F.least("timestamp", "a_timestamp")
    promised = F.col("min_age_ms") > 0
    outlived = promised & (F.col("between") >= F.col("size")) & (since > F.col("min_age_ms"))
    far = F.coalesce((F.col("between") >= F.col("capacity")) | outlived, F.lit(True))
    crossed = F.col("strangers") & ~aged
    beyond = (F.col("forgot") | F.col("moved") | F.col("renamed") | aged | far) & ~crossed
    reason = text(
        "accepted although known, with ", F.when(F.col("exact"), "").otherwise("at most "), F.col("between"),
        " IDs since then; the ring promises ", F.col("capacity"),
        F.when(promised, text(" while they are young (id_min_age), or the last ", F.col("size"))).otherwise(""),
        F.when(F.col("renamed"), ", but its address has another name since, and new rings")
        .when(F.col("moved"), ", but its home has moved since: another partitioner")
        .when(F.col("forgot"), ", but was cleared, switched off or reopened meanwhile").otherwise(""),
    )  # fmt: skip
    found = pairs.where("capacity > 0 or forgot").withColumns(
        {
            "other_partition": F.col("a_partition"),
            "other_offset": F.col("a_offset"),
            "gone": ~F.col("exact") & (F.col("a_run") < F.col("whole_since")) & ~crossed,
            "crossed": crossed,
        }
    )
    anomaly = (
        F.when(F.col("crossed"), Anomaly.CROSS_LANE.value)
        .when(beyond, Anomaly.OVERRUN.value)
        .when(F.col("gone"), Anomaly.GAP.value)
        .otherwise(Anomaly.FORGOTTEN.value)
    )
    worst = Window.partitionBy(*INPUT, "id_address", "id").orderBy(
        "crossed", beyond, "gone", "between", "a_partition", "a_offset"
    )
    of_id = Window.partitionBy(*_ID, "crossed").orderBy(*_RING, "partition", "offset", "part_number")
    judged = (
        found.withColumns({"worst": F.row_number().over(worst), "judged": anomaly})
        .where("worst = 1")
        .withColumn("nth", F.row_number().over(of_id))
        .where("not crossed or nth = 1")
    )
    return rows(
        judged,
        Anomaly.FORGOTTEN,
        F.when(F.col("crossed"), f"{_CROSSED}: the two have different groups")
        .when(
            F.col("gone") & ~beyond,
            text("FORGOTTEN or not, evidence of messages between is deleted: ", reason),
        )
        .otherwise(reason),
        anomaly=F.col("judged"),
        suspected=F.when(F.col("gone") & ~beyond, Anomaly.FORGOTTEN.value),
    )
