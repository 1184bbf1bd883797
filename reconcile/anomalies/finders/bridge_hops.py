"""Finds FORGOTTEN, OVERRUN and CROSS-LANE among hops of bridges, and PHANTOM for unreadable hops."""

import functools
import operator
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.anomalies.names import Anomaly, rows, text
from reconcile.run.frames.evidence import ONCE, RECORD
from reconcile.run.frames.hops import KEPT_MAX, SOURCE
from reconcile.spark.hops import MALFORMED
from reconcile.spark.schemas import ANOMALIES, PASSED

_HOP: Final = ["address", "hop_source", "hop_offset"]
UNREAD: Final = f"{ONCE} and hop_source = '{MALFORMED}' and fate in {PASSED}"  # rows of :func:`unread`


def again(followed: DataFrame, promised: Column) -> DataFrame:
    """Return hops accepted more than once, or accepted although their lane knew them; earlier runs count too.

    A lane without a ring ignores hops, so its hops are left out. ``capacity`` becomes the number of hops of a
    route that the lane keeps.

    Args:
        followed: :data:`reconcile.spark.schemas.FOLLOWED`.
        promised: Size of the lane's ring if no event shows it.
    """
    accepted = followed.where(f"(kept and accepted) or ({ONCE} and fate in {PASSED})")
    kept = F.least(F.coalesce("capacity", promised), F.lit(KEPT_MAX))
    sized = accepted.withColumn("capacity", kept).where("capacity > 0")
    several = (
        sized.where("hop_offset is not null").groupBy(*_HOP)
        .agg(F.count(F.lit(1)).alias("times"), F.min("kept").alias("old"))
        .where("times > 1 and not old")
    )  # fmt: skip
    marked = sized.join(several.select(*_HOP, "times"), on=_HOP, how="left")
    return marked.where(_known() | F.col("times").isNotNull())


def _known() -> Column:
    below = F.coalesce(F.col("hop_offset") < F.col("confirmed_ever"), F.lit(False))
    return ~F.col("kept") & (F.col("same_ever").isNotNull() | below)


def forgotten(again: DataFrame, followed: DataFrame) -> DataFrame:
    """Return hops that their route accepted again: FORGOTTEN within the promise, OVERRUN beyond it.

    A lane knows all hops below the confirmed hop forever. Above it, the lane keeps the highest hops, as many
    as its ring holds IDs. An event such as a clear or a resize also makes it forget hops.
    """
    below = F.coalesce(F.col("hop_offset") < F.col("confirmed_kept"), F.lit(False))
    there = F.col("same_sure").isNotNull()
    # The difference of two hop offsets is an upper bound of the hops between them.
    far = F.col("highest") - F.col("hop_offset") >= F.col("capacity")
    known = again.where(_known()).withColumn("first_partition", F.col("partition"))
    found = _counted(known, followed, ~below & there & far)
    kept = below | (there & (F.col("above") < F.col("capacity")))
    reason = (
        F.when(below, text("accepted although all below ", F.col("confirmed_kept"), " of its source was confirmed before"))
        .when(kept, "accepted although known: its lane had it before")
        .when(
            there,
            text("accepted again, with ", F.col("above"), " higher ones since then; the lane keeps ", F.col("capacity")),
        )
        .otherwise("accepted again, but what the lane knew of hops was cleared, resized or reopened meanwhile")
    )  # fmt: skip
    return rows(
        found,
        Anomaly.FORGOTTEN,
        _of_hop(reason),
        anomaly=F.when(kept, Anomaly.FORGOTTEN.value).otherwise(Anomaly.OVERRUN.value),
        other_partition=F.when(F.col("same_ever").isNotNull(), F.col("partition")),
        other_offset=F.col("same_ever"),
    )


def _counted(found: DataFrame, followed: DataFrame, needed: Column) -> DataFrame:
    """Add ``above``: the number of higher hops that reached the lane before the row.

    It counts hops of the row's own route, or an upper bound over its route and that of ``first_partition``.
    The count joins each row with all hops of its source, so it is computed only for rows that match
    ``needed``. Other rows get 0.
    """
    f, h = found.where(needed).alias("f"), followed.where("hop_offset is not null").alias("h")
    same = [F.col(f"f.{name}") == F.col(f"h.{name}") for name in SOURCE]
    own = (F.col("f.partition") == F.col("h.partition")) & (
        F.col("h.kept") | (F.col("h.offset") < F.col("f.offset"))
    )
    two_routes = F.col("f.first_partition") != F.col("f.partition")
    either = two_routes & F.col("h.partition").isin(F.col("f.partition"), F.col("f.first_partition"))
    higher = F.col("h.hop_offset") > F.col("f.hop_offset")
    key = [F.col(f"f.{name}").alias(name) for name in RECORD]
    counted = (
        f.join(h, on=[*same, own | either, higher], how="inner")
        .groupBy(*key).agg(F.count_distinct("h.hop_offset").alias("above"))
    )  # fmt: skip
    return found.join(counted, on=RECORD, how="left").withColumn("above", F.coalesce("above", F.lit(0)))


def apart(again: DataFrame, followed: DataFrame) -> DataFrame:
    """Return hops that two routes accepted.

    Two lanes: CROSS-LANE, which needs a change of the address between the two sends. One lane: FORGOTTEN, or
    OVERRUN if the first hop was confirmed or lies beyond the promise of :func:`forgotten`. Hops of earlier
    runs count as first. Within this run, the order of places decides.
    """
    epochs = ("hop_epoch", "kept_epoch", "sure_epoch")
    place = F.struct((~F.col("kept")).alias("new"), "partition", "offset", "lane", "confirmed_route", *epochs)
    first = (
        again.where(F.col("hop_offset").isNotNull() & ~_known())
        .groupBy(*_HOP)
        .agg(F.min(place).alias("first"))
    )
    later = again.where(~F.col("kept") & ~_known()).join(first, on=_HOP, how="inner")
    crossed = F.col("lane") != F.col("first.lane")
    confirmed = F.when(F.col("first.new"), F.greatest("first.confirmed_route", "confirmed_route")).otherwise(
        F.col("first.confirmed_route")
    )
    below = F.coalesce(confirmed > F.col("hop_offset"), F.lit(False))
    differs = [F.col(epoch) != F.col(f"first.{epoch}") for epoch in epochs]
    ordered = functools.reduce(operator.or_, differs)
    by_others = crossed | below | ordered
    by_two = later.where("partition != first.partition or lane != first.lane").withColumn(
        "first_partition", F.col("first.partition")
    )
    found = _counted(by_two, followed, ~by_others)
    beyond = ordered | (F.col("above") >= F.col("capacity"))
    detail = (
        F.when(crossed, "accepted in another lane too: partitions or groups of the address were changed")
        .when(below, "accepted by another input partition too, although one of the two knew it as confirmed")
        .when(beyond, "accepted by another input partition too, which the lane had forgotten on purpose or because of its ring's size")
        .otherwise("accepted by another input partition too")
    )  # fmt: skip
    return rows(
        found,
        Anomaly.CROSS_LANE,
        _of_hop(detail),
        anomaly=F.when(crossed, Anomaly.CROSS_LANE.value)
        .when(below | beyond, Anomaly.OVERRUN.value)
        .otherwise(Anomaly.FORGOTTEN.value),
        other_partition=F.col("first.partition"),
        other_offset=F.col("first.offset"),
    )


def others(found: DataFrame, of_hops: DataFrame) -> DataFrame:
    """Return anomalies of IDs, without records that an anomaly of their hop already names."""
    named = of_hops.where(F.col("anomaly") != Anomaly.OVERRUN.value).select(*RECORD)
    return found.join(named, on=RECORD, how="left_anti").select(*ANOMALIES.names)


def unread(evidence: DataFrame) -> DataFrame:
    """Return PHANTOM for accepted records with an unreadable hop, which belong in quarantine."""
    return rows(
        evidence.where(UNREAD),
        Anomaly.PHANTOM,
        F.lit("its input came over a bridge, and its hop cannot be read: it belongs in quarantine"),
    )


def _of_hop(problem: Column) -> Column:
    return text("hop ", F.col("hop_source"), "/", F.col("hop_offset"), ": ", problem)
