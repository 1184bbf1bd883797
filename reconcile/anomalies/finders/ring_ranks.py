"""Order in which a ring got its IDs: bounds from the logs, or exact from sequence numbers.

It finds numbers given twice (FORGOTTEN), and the last number before an input.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from reconcile.anomalies.names import Anomaly, rows, text
from reconcile.run.frames.evidence import route
from reconcile.run.frames.journal import emptied_before

_RING: Final = ["address", "lane"]
_EPOCH: Final = [*_RING, "emptied"]
INPUT: Final = [*_RING, "partition", "offset", "part_number"]
"""Columns that name an accepted ID by its input: a transaction has several IDs, each with a part number."""
CAME: Final = ["run", "at", "part_number"]
"""Columns that order a route, the run first: a topic that was created again counts offsets from 0."""
_RANKS: Final = [*INPUT, "total", "before", "after", "witness", "period", "turn", "sequence", "newest"]
"""Columns of :func:`ranks`."""


def routed(ids: DataFrame) -> DataFrame:
    """Add ``route``, the input by which the lane read each ID, and ``at``, the ID's offset on it."""
    return ids.withColumns({"route": route(), "at": F.coalesce("forward_offset", "offset")})


def ranks(
    ids: DataFrame,
    lanes: DataFrame,
    events: DataFrame | None = None,
    *,
    sequenced: bool = False,
    promised: bool = False,
) -> DataFrame:
    """Count the IDs certainly accepted before and after each ID of the given ``lanes``.

    If input and output of a ring contradict each other, the output is out of order itself, and is not a
    witness. ``sequenced``: IDs may have sequence numbers, which give the order since the ring was last
    emptied; if they fall along a route, a new ring has started. ``promised``: some rings keep IDs for an age,
    so that ``newest`` is needed.
    """
    chosen = routed(ids.join(F.broadcast(lanes), on=_RING, how="left_semi"))
    place, one = ["out_address", "out_partition"], F.count(F.lit(1))
    source, output = Window.partitionBy(*_RING, "route"), Window.partitionBy(*_RING, *place)
    both = Window.partitionBy(*_RING, "route", *place)
    along, along_both = source.orderBy(*CAME), both.orderBy(*CAME)
    in_output = output.orderBy("out_offset", "part_number")
    # Sort backwards. For a frame that ends at the last row, Spark reads the frame again for each row: n * n
    # steps for n IDs.
    back = source.orderBy(*(F.desc(name) for name in CAME))
    others = {
        "others_before": along.rowsBetween(Window.unboundedPreceding, Window.currentRow),
        "others_after": back.rowsBetween(Window.unboundedPreceding, Window.currentRow),
    }
    previous = F.lag("out_offset").over(along_both)
    ranked = (
        chosen.withColumns({"s": F.row_number().over(along), "s_n": one.over(source)})
        .withColumns({"b": F.row_number().over(along_both), "b_n": one.over(both), "previous": previous})
        .withColumns({"o": F.row_number().over(in_output), "o_n": one.over(output)})
        .withColumns({"others_before": F.expr("o - b"), "others_after": F.expr("o_n - o - b_n + b")})
        # IDs before some ID of a route came before all later IDs of that route, whichever output partition
        # shows it.
        .withColumns({name: F.max(name).over(frame) for name, frame in others.items()})
    )
    disorder = F.max((F.col("previous") > F.col("out_offset")).cast("int"))
    totals = ranked.groupBy(*_RING).agg(F.count(F.lit(1)).alias("total"), disorder.alias("disorder"))
    joined = ranked.join(F.broadcast(totals), on=_RING, how="inner")
    witness = F.coalesce(F.col("disorder"), F.lit(0)) == 0
    before = F.col("s") - 1 + F.when(witness, F.col("others_before")).otherwise(0)
    after = F.col("s_n") - F.col("s") + F.when(witness, F.col("others_after")).otherwise(0)
    ranks = joined.withColumns({"before": before, "after": after, "witness": witness})
    if sequenced:
        found = _in_sequence(ranks, events)
    else:
        nothing = F.lit(None).cast("bigint")
        found = ranks.withColumns(dict.fromkeys(("period", "turn", "sequence"), nothing))
    newest = _with_newest(found) if promised else found.withColumn("newest", F.lit(None).cast("bigint"))
    return newest.select(*_RANKS)


def _with_newest(ranked: DataFrame) -> DataFrame:
    """Add ``newest``: highest timestamp of records that may have been accepted before an ID, or with it.

    An ID may precede another only if fewer IDs certainly precede it than can precede the other.
    """
    possible = F.struct(
        (F.col("total") - F.col("after") - 1).alias("place"), F.lit(True).alias("asks"), *INPUT[2:]
    )
    certain = F.struct(
        F.col("before").alias("place"),
        F.lit(False).alias("asks"),
        *(F.lit(None).alias(name) for name in INPUT[2:]),
    )
    both = ranked.select(*_RING, "period", "timestamp", F.inline(F.array(certain, possible)))
    order = Window.partitionBy(*_RING).orderBy(F.coalesce("period", F.lit(0)), "place", "asks")
    until = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    seen = F.max(F.when(~F.col("asks"), F.col("timestamp"))).over(until)
    newest = both.withColumn("newest", seen).where("asks").select(*INPUT, "newest")
    return ranked.join(newest, on=INPUT, how="inner")


def _in_sequence(ranked: DataFrame, events: DataFrame | None) -> DataFrame:
    """Replace ranks by sequence numbers in rings that have them.

    ``period``: how often the ring was emptied before. ``turn``: the sequence number, or the last one before
    it on the route. Both are null in rings without sequence numbers, or with numbers that fall along a route.
    """
    judged = emptied_before(ranked, events).drop("events")
    along = Window.partitionBy(*_EPOCH, "route").orderBy(*CAME)
    last = F.max("sequence").over(along.rowsBetween(Window.unboundedPreceding, -1))
    found = judged.withColumn("last", last)
    falls = F.coalesce(F.col("sequence") <= F.col("last"), F.lit(False))
    known = found.groupBy(*_EPOCH).agg(
        F.min("sequence").alias("low"), F.max("sequence").alias("high"), F.max(falls).alias("falls")
    )
    both = found.join(F.broadcast(known.where("low is not null and not falls")), on=_EPOCH, how="left")
    shown = F.col("low").isNotNull() & F.col("sequence").isNotNull()
    in_order = {
        "total": F.greatest("total", F.col("high") - F.col("low") + 1),
        "before": F.when(shown, F.col("sequence") - F.col("low")).otherwise(F.col("before")),
        "after": F.when(shown, F.col("high") - F.col("sequence")).otherwise(F.col("after")),
        "period": F.when(F.col("low").isNotNull(), F.col("emptied").cast("bigint")),
        "turn": F.when(F.col("low").isNotNull(), F.coalesce("sequence", "last", F.col("low") - 1)),
        "sequence": F.when(shown, F.col("sequence")),
    }
    return both.withColumns(in_order)


def given_twice(ids: DataFrame, events: DataFrame | None) -> DataFrame:
    """Return IDs whose sequence number another ID of the ring has too, without the first of each number.

    A ring that was opened in memory only starts its numbers again. ``events``:
    :data:`reconcile.spark.schemas.EVENTS`, or None.
    """
    numbered = emptied_before(ids.where("sequence is not null"), events)
    same = Window.partitionBy(*_EPOCH, "sequence").orderBy("partition", "offset", "part_number")
    place = F.struct("partition", "offset")
    found = numbered.withColumns({"nth": F.row_number().over(same), "first": F.first(place).over(same)})
    return rows(
        found.where("nth > 1"),
        Anomaly.FORGOTTEN,
        text(
            "its lane gave the sequence number ",
            F.col("sequence"),
            " to another ID too: its ring did not know one of them when it judged the other",
        ),
        other_partition=F.col("first.partition"),
        other_offset=F.col("first.offset"),
    )


def with_heads(candidates: DataFrame, ids: DataFrame, events: DataFrame | None, run: int) -> DataFrame:
    """Add ``head``: the highest number that the ring certainly gave before the candidate, or null.

    Numbers rise along each input of a lane, in each output partition, and from run to run. If they fall
    anywhere in a ring, the ring started its numbers again, and they prove nothing.
    """
    numbered = emptied_before(routed(ids.where("sequence is not null")), events).drop("events")
    new, earlier = numbered.where(F.col("run") == run), numbered.where(F.col("run") < run)
    in_output = Window.partitionBy(*_EPOCH, "out_address", "out_partition").orderBy(
        "out_offset", "part_number"
    )
    last = F.max("sequence").over(in_output.rowsBetween(Window.unboundedPreceding, -1))
    given = new.select(
        *_EPOCH, "route", "at", F.col("part_number").alias("nth_part"), F.col("sequence").alias("given"),
        (F.col("sequence") < last).alias("falls"),
    )  # fmt: skip
    asking = emptied_before(routed(candidates), events).drop("events").withColumn("asks", F.lit(True))
    both = asking.unionByName(given.withColumn("asks", F.lit(False)), allowMissingColumns=True)
    along = Window.partitionBy(*_EPOCH, "route").orderBy("at", F.desc("asks"), "nth_part")
    before = F.max("given").over(along.rowsBetween(Window.unboundedPreceding, -1))
    placed = both.withColumn("last", before)
    known = placed.where("not asks").groupBy(*_EPOCH).agg(
        F.min("given").alias("low"), F.max(F.col("falls") | (F.col("given") <= F.col("last"))).alias("falls")
    )  # fmt: skip
    ended = earlier.groupBy(*_EPOCH).agg(F.max("sequence").alias("ended"))
    sound = known.join(ended, on=_EPOCH, how="left").where(
        "not coalesce(falls, false) and low > coalesce(ended, -1)"
    )
    found = placed.where("asks").join(
        F.broadcast(sound.select(*_EPOCH, "ended", "low")), on=_EPOCH, how="left"
    )
    head = F.when(F.col("low").isNotNull(), F.greatest("last", "ended"))
    return found.select(*candidates.columns, head.alias("head"))
