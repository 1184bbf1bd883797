"""FORGOTTEN, OVERRUN, CROSS-LANE: IDs that were accepted more than once.

A ring of N knows an ID while fewer than N others were accepted in its lane after it. How many were is seen exactly where
all came from one input partition. What was forwarded from another came in between at a moment that nobody saw; but a
lane writes one transaction after the other, so its records are in its own order in each partition of the output. That
bounds the number from above, and an ID is called FORGOTTEN only where even that bound lies within the promise.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from reconcile.anomalies.name import Anomaly, rows
from reconcile.night.journal import empties

_ID = ["id_address", "id"]
_RING = ["address", "lane"]
_INPUT = [*_RING, "partition", "offset", "part_number"]
"""An ID of a ring by where it came in: a transaction brings several, each with a part."""


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
    topics = F.array(*(F.lit(each) for each in input_topics))
    away = F.concat(
        F.lit(", as "), F.get(topics, F.col("one.address")), F.lit("/"), F.col("one.partition").cast("string"), F.lit("/"),
        F.col("one.offset").cast("string"),
    )  # fmt: skip
    placed = nearest.withColumns({each: F.col(f"other.{each}") for each in place})
    return rows(
        placed.join(F.broadcast(rules.select("address", "max_age_ms")), on="address", how="inner"),
        Anomaly.CROSS_LANE,
        F.concat(detail, F.when(same, F.lit("")).otherwise(away)),
        anomaly=F.when(aged, F.lit(Anomaly.OVERRUN.value)).otherwise(F.lit(Anomaly.CROSS_LANE.value)),
        other_partition=F.when(same, F.col("one.partition")),
        other_offset=F.when(same, F.col("one.offset")),
    )


def pairs(repeated: DataFrame, night: int) -> DataFrame:
    """Each ID of this night beside the one before it in its lane; columns of the earlier one begin with ``a_``."""
    lane = Window.partitionBy(*_ID, "address", "home")
    # From one input partition: in its order. Else in that of the output.
    single = F.size(F.collect_set("partition").over(lane)) == 1
    ordered = lane.orderBy("place", "night", "out_partition", "out_offset")
    earlier = [
        "partition",
        "offset",
        "part_number",
        "forward_offset",
        "timestamp",
        "out_address",
        "out_partition",
        "out_offset",
        "lane",
        "night",
    ]
    placed = repeated.withColumn("place", F.when(single, F.col("offset")))
    return placed.withColumns({f"a_{each}": F.lag(each).over(ordered) for each in earlier}).where(
        (F.col("night") == night) & F.col("a_offset").isNotNull()
    )


def ranks(ids: DataFrame, lanes: DataFrame) -> DataFrame:
    """How many IDs were certainly accepted before and after each, and how many there are, in the lanes named.

    Where input and output disagree on what came before what, the output is out of order itself, and no witness.
    """
    chosen = ids.join(F.broadcast(lanes), on=_RING, how="left_semi")
    place = ["out_address", "out_partition"]
    source, output = Window.partitionBy(*_RING, "partition"), Window.partitionBy(*_RING, *place)
    both = Window.partitionBy(*_RING, "partition", *place)
    came, went = ["offset", "part_number"], ["out_offset", "part_number"]
    before_both = F.lag("out_offset").over(both.orderBy(*came))
    ranked = (
        chosen.withColumns(
            {"s": F.row_number().over(source.orderBy(*came)), "s_n": F.count(F.lit(1)).over(source)}
        )
        .withColumns(
            {
                "b": F.row_number().over(both.orderBy(*came)),
                "b_n": F.count(F.lit(1)).over(both),
                "previous": before_both,
            }
        )
        .withColumns({"o": F.row_number().over(output.orderBy(*went)), "o_n": F.count(F.lit(1)).over(output)})
    )
    disorder = F.max((F.col("previous") > F.col("out_offset")).cast("int"))
    totals = ranked.groupBy(*_RING).agg(F.count(F.lit(1)).alias("total"), disorder.alias("disorder"))
    joined = ranked.join(F.broadcast(totals), on=_RING, how="inner")
    witness = F.coalesce(F.col("disorder"), F.lit(0)) == 0
    before = F.col("s") - 1 + F.when(witness, F.col("o") - F.col("b")).otherwise(0)
    after = (
        F.col("s_n")
        - F.col("s")
        + F.when(witness, F.col("o_n") - F.col("o") - F.col("b_n") + F.col("b")).otherwise(0)
    )
    return joined.select(
        *_INPUT, "total", before.alias("before"), after.alias("after"),
        witness.alias("witness"),
    )  # fmt: skip


def between(pairs: DataFrame, ranks: DataFrame) -> DataFrame:
    """The pairs, with ``between``: the largest possible number of IDs that were accepted between the two.

    Where two lanes have judged them these are all of the first's behind the one, and all of the second's before the other.

    Args:
        pairs: As :func:`reconcile.anomalies.moved.with_passed` has them.
        ranks: Of the lanes of both.
    """
    later = ranks.select(
        *_INPUT, "total", "witness",
        F.col("before").alias("b_before"), F.col("after").alias("b_after"),
    )  # fmt: skip
    earlier = ranks.select(
        "address",
        F.col("lane").alias("a_lane"),
        F.col("partition").alias("a_partition"),
        F.col("offset").alias("a_offset"),
        F.col("part_number").alias("a_part_number"),
        F.col("total").alias("a_total"),
        F.col("before").alias("a_before"),
        F.col("after").alias("a_after"),
    )
    joined = pairs.join(later, on=_INPUT, how="left").join(
        earlier, on=["address", *(f"a_{each}" for each in _INPUT[1:])], how="left"
    )
    one = F.col("lane") == F.col("a_lane")
    both = F.when(one, F.col("total")).otherwise(F.col("total") + F.col("a_total") + F.col("passed"))
    forth = both - 2 - F.col("a_before") - F.col("b_after")
    back = both - 2 - F.col("b_before") - F.col("a_after")
    seen = (F.col("partition") == F.col("a_partition")) | (
        F.col("witness")
        & (F.col("out_address") == F.col("a_out_address"))
        & (F.col("out_partition") == F.col("a_out_partition"))
    )
    known = F.when(one, seen).otherwise(F.col("a_night") < F.col("night"))
    apart = F.when(known, forth).otherwise(F.greatest(forth, back))
    # The larger of a number and of what is not known is that number.
    return joined.withColumn("between", F.when(apart.isNotNull(), F.greatest(F.lit(0), apart)))


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
    between = a_before & ~b_before
    least = F.least("e.before", "e.after")
    forgets = empties(F.col("e.event"), F.col("e.before"), F.col("e.after")) | (least == 0)
    seen = joined.groupBy(*(F.col(f"p.{each}") for each in key)).agg(
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
    """FORGOTTEN within the promise, OVERRUN beyond it; nothing where the ring was off. GAP where IDs between are missing."""
    aged = (F.col("max_age_ms") > 0) & (F.col("timestamp") - F.col("a_timestamp") > F.col("max_age_ms"))
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
    return rows(
        found,
        Anomaly.FORGOTTEN,
        F.when(F.col("gone") & ~beyond, F.concat(missing, reason)).otherwise(reason),
        anomaly=F.when(beyond, F.lit(Anomaly.OVERRUN.value))
        .when(F.col("gone"), F.lit(Anomaly.GAP.value))
        .otherwise(F.lit(Anomaly.FORGOTTEN.value)),
        suspected=F.when(F.col("gone") & ~beyond, F.lit(Anomaly.FORGOTTEN.value)),
    )
