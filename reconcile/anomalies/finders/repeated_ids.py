"""FORGOTTEN, OVERRUN, CROSS-LANE: IDs that were accepted more than once.

A ring of N knows an ID while fewer than N others were accepted in its lane after it. A lane reads two inputs, its own partition
and the forward topic, each in order. No record shows how it interleaved them. But a lane writes one transaction after the other, so
its records are in its own order in each partition of the output. That bounds the number from above. An ID is called FORGOTTEN only if
even that bound lies within the promise.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconcile.anomalies.names import Anomaly, rows
from reconcile.run.frames.journal import empties

_ID = ["id_address", "id"]
_RING = ["address", "lane"]
_INPUT = [*_RING, "partition", "offset", "part_number"]
"""An ID of a ring by where it came in: a transaction brings several, each with a part."""
_CAME = ["night", "at", "part_number"]
"""The order of one route. A topic that was created again begins at 0 again, in a later run."""
FORWARDED: Final = -1
"""The route of what was forwarded to its lane; that of others is the lane's own partition."""


def repeated(ids: DataFrame, night: int) -> DataFrame:
    """All rows of the IDs that were accepted several times, once at least in this night.

    Args:
        ids: :data:`reconcile.spark.schemas.IDS` of this night and those before.
        night: This one's number.
    """
    tonight = F.max((F.col("night") == night).cast("int"))
    several = ids.groupBy(*_ID).agg(F.count(F.lit(1)).alias("times"), tonight.alias("tonight"))
    chosen = several.where("times > 1 and tonight = 1").select(*_ID)
    rows_of = ids.join(chosen, on=_ID, how="left_semi")
    # Of one group is of one home, whatever way they took.
    home = Window.partitionBy(*_ID, "address", "home_digest")
    return rows_of.withColumn("home", F.min("lane").over(home))


def cross_lane(repeated: DataFrame, night: int, rules: DataFrame, input_topics: Sequence[str]) -> DataFrame:
    """IDs that reached another lane in this night: the resend had another group, or its transaction another key. A row an ID.

    OVERRUN where it came so long after each of the others that the ID no longer counted. Which of two lanes was first is
    known if it was on another night.
    """
    place = ["partition", "offset", "part_number", "out_address", "out_partition", "out_offset", "address"]
    ordered = ["partition", "offset", "out_partition", "out_offset", "timestamp", "home"]
    first = repeated.groupBy(*_ID, "address", "home").agg(
        F.min("night").alias("first_night"),
        F.min(F.struct("night", *ordered, "address", "part_number", "out_address")).alias("first"),
    )
    homes = first.groupBy(*_ID).agg(
        F.count(F.lit(1)).alias("homes"),
        F.max("first_night").alias("last_night"),
        F.min("first").alias("one"),
        F.max("first").alias("other"),
    )
    found = homes.where((F.col("homes") > 1) & (F.col("last_night") == night))
    elsewhere = repeated.join(found, on=_ID, how="inner").where(
        (F.col("home") != F.col("other.home")) | (F.col("address") != F.col("other.address"))
    )
    apart = F.col("other.timestamp") - F.col("timestamp")
    known = F.col("night") < F.col("other.night")
    nearest = elsewhere.groupBy(*_ID).agg(
        F.first("one").alias("one"),
        F.first("other").alias("other"),
        F.min(F.when(known, apart).otherwise(F.abs(apart))).alias("apart"),
    )
    aged = (F.col("max_age_ms") > 0) & (F.col("apart") > F.col("max_age_ms"))
    detail = F.when(
        aged, F.lit("accepted in another lane too, when its ID no longer counted: id_max_age")
    ).otherwise(F.lit("accepted in another lane too: the two have different groups"))
    same = F.col("one.address") == F.col("other.address")
    topics = F.array(*(F.lit(topic) for topic in input_topics))
    away = F.concat(
        F.lit(", as "), F.get(topics, F.col("one.address")), F.lit("/"), F.col("one.partition").cast("string"), F.lit("/"),
        F.col("one.offset").cast("string"),
    )  # fmt: skip
    placed = nearest.withColumns({name: F.col(f"other.{name}") for name in place})
    return rows(
        placed.join(F.broadcast(rules.select("address", "max_age_ms")), on="address", how="inner"),
        Anomaly.CROSS_LANE,
        F.concat(detail, F.when(same, F.lit("")).otherwise(away)),
        anomaly=F.when(aged, F.lit(Anomaly.OVERRUN.value)).otherwise(F.lit(Anomaly.CROSS_LANE.value)),
        other_partition=F.when(same, F.col("one.partition")),
        other_offset=F.when(same, F.col("one.offset")),
    )


def pairs(repeated: DataFrame, ranks: DataFrame, night: int) -> DataFrame:
    """Each ID of this run beside those accepted before it in its lane that can matter; columns of the earlier one begin with ``a_``.

    A lane reads two inputs: its partition of the input topic, and of the forward topic. In each of these *routes* offsets are the order of
    acceptance; output partitions are not, because a message without a key goes to any. Each ID stands beside the one before it by the same
    route, and beside the nearest by the other route. The intervals of :func:`ranks` are in order along each route. Sorted by the middle of their
    interval, the last of each route before an acceptance is the nearest.

    Args:
        repeated: As :func:`repeated` has them.
        ranks: As :func:`ranks` has them, for all lanes in ``repeated``.
        night: This run's number.
    """
    placed = (
        _routed(repeated).join(ranks, on=_INPUT, how="left").withColumn("middle", F.expr("before - after"))
    )
    earlier = [
        "partition", "offset", "part_number", "forward_offset", "timestamp", "out_address", "out_partition", "out_offset",
        "lane", "night", "route", "before", "after", "total",
    ]  # fmt: skip
    row = F.struct(*earlier)
    home = [*_ID, "address", "home"]
    in_order = Window.partitionBy(*home).orderBy("lane", "middle", *_CAME)
    until = in_order.rowsBetween(Window.unboundedPreceding, -1)
    forwarded = F.col("route") == FORWARDED
    candidates = F.array(
        F.last(F.when(forwarded, row), ignorenulls=True).over(until),
        F.last(F.when(~forwarded, row), ignorenulls=True).over(until),
    )
    found = placed.withColumn("candidates", F.array_compact(candidates))
    beside = found.where(F.col("night") == night).select("*", F.explode("candidates").alias("a"))
    return beside.select(*placed.columns, *(F.col(f"a.{name}").alias(f"a_{name}") for name in earlier)).drop(
        "middle"
    )


def _routed(ids: DataFrame) -> DataFrame:
    """With ``route``, by which of its inputs the lane read it, and ``at``, the offset there."""
    forwarded = F.col("forward_offset").isNotNull()
    return ids.withColumns(
        {
            "route": F.when(forwarded, F.lit(FORWARDED)).otherwise(F.col("partition")),
            "at": F.coalesce("forward_offset", "offset"),
        }
    )


def ranks(ids: DataFrame, lanes: DataFrame) -> DataFrame:
    """How many IDs were certainly accepted before and after each, and how many there are, in the lanes named.

    If input and output disagree about an order, the output is out of order itself, and is not a witness.
    """
    chosen = _routed(ids.join(F.broadcast(lanes), on=_RING, how="left_semi"))
    place = ["out_address", "out_partition"]
    source, output = Window.partitionBy(*_RING, "route"), Window.partitionBy(*_RING, *place)
    both = Window.partitionBy(*_RING, "route", *place)
    went = ["out_offset", "part_number"]
    before_both = F.lag("out_offset").over(both.orderBy(*_CAME))
    ranked = (
        chosen.withColumns(
            {"s": F.row_number().over(source.orderBy(*_CAME)), "s_n": F.count(F.lit(1)).over(source)}
        )
        .withColumns(
            {
                "b": F.row_number().over(both.orderBy(*_CAME)),
                "b_n": F.count(F.lit(1)).over(both),
                "previous": before_both,
            }
        )
        .withColumns({"o": F.row_number().over(output.orderBy(*went)), "o_n": F.count(F.lit(1)).over(output)})
        .withColumns({"others_before": F.expr("o - b"), "others_after": F.expr("o_n - o - b_n + b")})
        # Whatever came before one of a route came before all later ones of it, whichever output partition shows it.
        .withColumns(
            {
                "others_before": F.max("others_before").over(
                    source.orderBy(*_CAME).rowsBetween(Window.unboundedPreceding, Window.currentRow)
                ),
                "others_after": F.max("others_after").over(
                    source.orderBy(*_CAME).rowsBetween(Window.currentRow, Window.unboundedFollowing)
                ),
            }
        )
    )
    disorder = F.max((F.col("previous") > F.col("out_offset")).cast("int"))
    totals = ranked.groupBy(*_RING).agg(F.count(F.lit(1)).alias("total"), disorder.alias("disorder"))
    joined = ranked.join(F.broadcast(totals), on=_RING, how="inner")
    witness = F.coalesce(F.col("disorder"), F.lit(0)) == 0
    before = F.col("s") - 1 + F.when(witness, F.col("others_before")).otherwise(0)
    after = F.col("s_n") - F.col("s") + F.when(witness, F.col("others_after")).otherwise(0)
    return joined.select(
        *_INPUT, "total", before.alias("before"), after.alias("after"),
        witness.alias("witness"),
    )  # fmt: skip


def between(pairs: DataFrame) -> DataFrame:
    """The pairs, with ``between`` and ``order``.

    ``between`` is the largest possible number of IDs that were accepted between the two. If two lanes have judged them, these are all
    of the first lane after the one, and all of the second lane before the other. ``order`` is 1 if the earlier one was certainly accepted
    first, -1 if the later one was, and 0 if no evidence shows it.

    Args:
        pairs: As :func:`reconcile.anomalies.finders.lane_moves.with_passed` has them.
    """
    one = F.col("lane") == F.col("a_lane")
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
        F.when(~one, (F.col("a_night") < F.col("night")).cast("int"))
        .when(F.col("route") == F.col("a_route"), 1)
        .when(shown, by_output)
        .otherwise(0)
    )
    ordered = pairs.withColumn("order", order)
    apart = (
        F.when(F.col("order") > 0, forth).when(F.col("order") < 0, back).otherwise(F.greatest(forth, back))
    )
    # The larger of a number and of what is not known is that number.
    return ordered.withColumn("between", F.when(apart.isNotNull(), F.greatest(F.lit(0), apart)))


def promised(pairs: DataFrame, events: DataFrame | None, rules: DataFrame, capacity: Column) -> DataFrame:
    """The pairs, with the ``capacity`` in force, and whether the ring was ``told`` to forget in between.

    Clearing it, switching it off and opening it anew in memory only are such orders. Of a ring whose size was changed in between the
    smallest counts: that many of the newest stay. Where the home has ``moved`` by another
    partitioner the second lane knows nothing of what the first knew; nor does any where the address was ``renamed``.

    An event lies between two of a lane if the first was judged before it and the second not. All events of a lane that has got what
    the first one's knew lie behind the first, and those of one that has handed it on before the second.

    Args:
        pairs: As :func:`between` has them.
        events: :data:`reconcile.spark.schemas.EVENTS`; None = there are none.
        rules: address, max_age_ms, whole_since, moved, and more.
        capacity: Of address, lane and a_lane, where no event tells it.
    """
    limits = (
        pairs.join(
            F.broadcast(
                rules.select("address", "max_age_ms", "whole_since", F.col("moved").alias("until"), "renamed")
            ),
            on="address",
            how="inner",
        )
        .withColumn("capacity", capacity)
        .withColumn("moved", (F.col("lane") != F.col("a_lane")) & (F.col("a_night") <= F.col("until")))
        .withColumn("renamed", F.col("a_night") <= F.col("renamed"))
    )
    if events is None:
        return limits.withColumn("told", F.lit(False))
    e, p = events.alias("e"), limits.alias("p")
    joined = p.join(
        F.broadcast(e),
        on=(F.col("p.address") == F.col("e.address")) & F.array_contains("p.lanes", F.col("e.lane")),
        how="left",
    )
    known = F.col("e.number").isNotNull()
    of_first, of_second = F.col("e.lane") == F.col("p.a_lane"), F.col("e.lane") == F.col("p.lane")
    a_before = known & (~of_first | _before("p.a_offset", "p.a_forward_offset"))
    b_before = known & of_second & _before("p.offset", "p.forward_offset")
    key = ["address", "partition", "offset", "part_number", "a_partition", "a_offset", "a_part_number"]
    between = (
        F.when(F.col("p.order") > 0, a_before & ~b_before)
        .when(F.col("p.order") < 0, b_before & ~a_before)
        .otherwise(known & (a_before != b_before))
    )
    least = F.least("e.before", "e.after")
    forgets = empties(F.col("e.event"), F.col("e.before"), F.col("e.after")) | (least == 0)
    seen = joined.groupBy(*(F.col(f"p.{name}") for name in key)).agg(
        F.max(between & forgets).alias("told"),
        F.max_by("e.after", F.when(known & ~a_before, F.col("e.number"))).alias("last"),
        F.min(F.when(between, least)).alias("least"),
        F.min_by("e.before", F.when(b_before, F.col("e.number"))).alias("next"),
    )
    return (
        limits.join(seen, on=key, how="inner")
        .withColumn("capacity", F.coalesce(F.least("last", "least", "next"), "capacity"))
        .drop("last", "least", "next")
    )


def _before(offset: str, forward_offset: str) -> Column:
    """Whether an input was judged before the event: by the offset in that of the lane's two inputs in which it came."""
    forwarded = F.col(forward_offset).isNotNull()
    return F.when(forwarded, F.col(forward_offset) < F.col("e.forward_next")).otherwise(
        F.col(offset) < F.col("e.input_next")
    )


def remembered(pairs: DataFrame) -> DataFrame:
    """FORGOTTEN within the promise, OVERRUN beyond it; nothing where the ring was off. GAP where IDs between are missing.

    The worst of several pairs of one input counts. If no evidence shows which came first, either order counts as possible.
    """
    apart = F.col("timestamp") - F.col("a_timestamp")
    older = F.when(F.col("order") > 0, apart).when(F.col("order") < 0, -apart).otherwise(F.abs(apart))
    aged = (F.col("max_age_ms") > 0) & (older > F.col("max_age_ms"))
    far = F.coalesce(F.col("between") >= F.col("capacity"), F.lit(True))
    beyond = F.col("told") | F.col("moved") | F.col("renamed") | aged | far
    reason = F.concat(
        F.lit("accepted although known, with at most "), F.col("between").cast("string"),
        F.lit(" IDs since then; the ring promises "), F.col("capacity").cast("string"),
        F.when(F.col("renamed"), F.lit(", but its address has another name since, and new rings"))
        .when(F.col("moved"), F.lit(", but its home has moved since: another partitioner"))
        .when(F.col("told"), F.lit(", but was cleared, switched off or reopened meanwhile")).otherwise(F.lit("")),
    )  # fmt: skip
    found = pairs.where("capacity > 0 or told").withColumns(
        {
            "other_partition": F.col("a_partition"),
            "other_offset": F.col("a_offset"),
            "gone": F.col("a_night") < F.col("whole_since"),
        }
    )
    missing = F.lit("FORGOTTEN or not, of what came in between evidence is deleted: ")
    anomaly = (
        F.when(beyond, F.lit(Anomaly.OVERRUN.value))
        .when(F.col("gone"), F.lit(Anomaly.GAP.value))
        .otherwise(F.lit(Anomaly.FORGOTTEN.value))
    )
    worst = Window.partitionBy(*_INPUT, "id_address", "id").orderBy(
        beyond, "gone", "between", "a_partition", "a_offset"
    )
    judged = found.withColumns({"worst": F.row_number().over(worst), "judged": anomaly}).where("worst = 1")
    return rows(
        judged,
        Anomaly.FORGOTTEN,
        F.when(F.col("gone") & ~beyond, F.concat(missing, reason)).otherwise(reason),
        anomaly=F.col("judged"),
        suspected=F.when(F.col("gone") & ~beyond, F.lit(Anomaly.FORGOTTEN.value)),
    )
