"""Hops: what a lane knew of those that came over bridges before. What came over none is not looked at.

A **way** is a bridge, a partition of its source, the input partition in which its records arrive, and the lane that judges them. A
record of a way is known if an earlier one of it has the same hop, or says that all up to beyond it is confirmed; or if the same hop
came to its lane by another way. Then it is a duplicate, whatever IDs it has. Two of one way are in the order of their input; of two
ways nobody saw which was first.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from reconcile.run.frames.evidence import ONCE, RECORD
from reconcile.spark.hops import MALFORMED
from reconcile.spark.schemas import ACCEPTED, DIVERTED, EVIDENCE, FOLLOWED, HOPS, QUARANTINED

OF_HOPS: Final = f"has_input and hop_source is not null and hop_source != '{MALFORMED}'"
"""Of the evidence: what came over bridges, and parts of it."""
SOURCE: Final = ["address", "lane", "hop_source"]
WAY: Final = [*SOURCE, "partition"]
_EPOCHS: Final = ("hop_epoch", "kept_epoch", "sure_epoch")
KEPT_MAX: Final = 65_536
"""Of one way a lane keeps no more hops, whatever its ring's size."""
_SINCE: Final[Mapping[str, Sequence[str]]] = {
    "known": _EPOCHS[:1], "kept": _EPOCHS[:2], "sure": _EPOCHS, "ever": (),
}  # fmt: skip
"""By which forgetting what came before is told apart."""
_PROMISED: Final = ("kept", "sure", "ever")
"""By these a hop that is accepted again is judged."""
_FORGOTTEN: Final = "forgotten"
"""The journal's word for a ring that is, or was, in memory only. What the lane knew of hops went with it; but what it had written down
before counts again once it is persistent again."""


def followed(evidence: DataFrame, kept: DataFrame | None, events: DataFrame | None) -> DataFrame:
    """:data:`reconcile.spark.schemas.FOLLOWED` of the rows :data:`OF_HOPS`, and of what nights before have kept.

    Args:
        evidence: Those rows.
        kept: :data:`reconcile.spark.schemas.HOPS`; None = nothing.
        events: :data:`reconcile.spark.schemas.EVENTS`; None = there are none.
    """
    rows = evidence.withColumns(
        {"kept": F.lit(False), "accepted": F.coalesce(F.col("whole") == ACCEPTED, F.lit(False))}
    )
    if kept is not None:
        rows = rows.unionByName(kept.withColumn("kept", F.lit(True)), allowMissingColumns=True)
    # A kept one came first, also where its topic has lost its tail since.
    rows = rows.withColumn("at", F.when(F.col("kept"), F.lit(-1)).otherwise(F.col("offset")))
    rows = _forgotten(rows, events)
    rows = rows.withColumn("noted", _noted())
    rows = rows.withColumn("lost", F.coalesce("lost", F.lit(False)) if kept is not None else F.lit(False))
    rows = rows.withColumns(_elsewhere([*SOURCE, "hop_epoch", "hop_offset"]))
    rows = rows.withColumn("confirmed_way", F.max("hop_confirmed").over(Window.partitionBy(*WAY)))
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
    return rows.withColumn("resent", resent).select(
        *(F.col(struct_field.name).cast(struct_field.dataType) for struct_field in FOLLOWED)
    )


def _on() -> Column:
    return F.coalesce(F.col("capacity") > 0, F.lit(True))


def _noted() -> Column:
    """Whether its lane has written down what it says: what it refused has come as well."""
    return F.col("kept") | (~F.col("waiting") & _on())


def _forgotten(rows: DataFrame, events: DataFrame | None) -> DataFrame:
    """The rows, with the ``capacity`` then, and how often their lane had forgotten hops before.

    ``hop_epoch``: all of them, by order. ``kept_epoch``: perhaps all, as they were in memory only. ``sure_epoch``: perhaps some, by
    another size. What was kept of an input that was created again is known, and nothing is promised of it.
    """
    if events is None:
        found = rows.withColumns(
            {**{epoch: F.lit(0) for epoch in _EPOCHS}, "capacity": F.lit(None).cast("bigint")}
        )
        return _of_another_input(found)
    event = F.struct("number", "input_next", "forward_next", "before", "after", "event", "of_hops")
    told = events.groupBy("address", "lane").agg(F.array_sort(F.collect_list(event)).alias("told"))
    with_told = rows.join(F.broadcast(told), on=["address", "lane"], how="left")

    def later(each: Column) -> Column:
        forwarded = F.col("forward_offset").isNotNull()
        return F.when(forwarded, F.col("forward_offset") >= each["forward_next"]).otherwise(
            F.col("offset") >= each["input_next"]
        )

    def in_memory(each: Column) -> Column:
        return ~_of_hops(each) & F.coalesce(each["event"] == _FORGOTTEN, F.lit(False))

    def resized(each: Column) -> Column:
        return ~_of_hops(each) & (each["before"] != each["after"])

    past, to_come = F.filter("told", later), F.filter("told", lambda each: ~later(each))
    sizes, next_sizes = (F.filter(column, lambda one: ~_of_hops(one)) for column in (past, to_come))
    orders = zip(_EPOCHS, (_of_hops, in_memory, resized), strict=True)
    counted = {name: F.size(F.filter(past, item)) for name, item in orders}
    known = F.col("told").isNotNull()
    found = with_told.withColumns(
        {
            **{name: F.when(known, column).otherwise(0) for name, column in counted.items()},
            "capacity": F.coalesce(
                F.get(F.reverse(sizes), F.lit(0))["after"], F.get(next_sizes, F.lit(0))["before"]
            ),
        }
    ).drop("told")
    return _of_another_input(found)


def _of_another_input(rows: DataFrame) -> DataFrame:
    gone = F.col("kept") & (F.col("offset") < 0)
    return rows.withColumns({epoch: F.when(gone, F.lit(-1)).otherwise(F.col(epoch)) for epoch in _EPOCHS[1:]})


def _of_hops(event: Column) -> Column:
    return F.coalesce(event["of_hops"], F.lit(False))


def _elsewhere(same_hop: list[str]) -> dict[str, Column]:
    """Whether the same hop came to the lane in another input partition too, and something tells of it."""
    window = Window.partitionBy(*same_hop)
    told = F.col("kept") | F.coalesce(F.col("whole").isin(ACCEPTED, DIVERTED, QUARANTINED), F.lit(False))
    there = F.when(told & F.col("noted"), F.col("partition"))
    first, last = F.min(there).over(window), F.max(there).over(window)
    found = F.coalesce((first != F.col("partition")) | (last != F.col("partition")), F.lit(False))
    return {"elsewhere": found & F.col("hop_offset").isNotNull()}


def _same(name: str, noted: Column) -> dict[str, Column]:
    """The same hop before by the way; parts of one envelope are not before each other."""
    earlier = _earlier(Window.partitionBy(*WAY, *_SINCE[name], "hop_offset"))
    there = noted & F.col("hop_offset").isNotNull()
    return {f"same_{name}": F.min(F.when(there, F.col("offset"))).over(earlier)}


def _confirmed(name: str) -> dict[str, Column]:
    earlier = _earlier(Window.partitionBy(*WAY, *_SINCE[name]))
    return {f"confirmed_{name}": F.max(F.when(F.col("noted"), F.col("hop_confirmed"))).over(earlier)}


def _promised() -> Column:
    """What is lost has made no hop known for certain."""
    return F.col("noted") & ~F.col("lost")


def _highest_and_least() -> dict[str, Column]:
    """Of its way, before it: the highest hop, and the lowest of those that were accepted in this night."""
    before = _earlier(Window.partitionBy(*WAY))
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
    """Place of each input of the night that is lost.

    Args:
        followed: :data:`reconcile.spark.schemas.FOLLOWED`.
        orphans: Of what is not accepted and has IDs, duplicates of nothing.
        dropping: Whether what has no output may be a duplicate by its ID.
    """
    missing = followed.where(
        "not kept and part_number = 0 and whole is null and not waiting and not resent"
    ).select(*RECORD, ((F.col("ids") == 0) | ~dropping).alias("sure"))
    alone = missing.where("not sure").join(orphans.select(*RECORD).distinct(), on=RECORD, how="left_semi")
    return missing.where("sure").unionByName(alone).select(*RECORD)


def without_lost(followed: DataFrame, lost: DataFrame) -> DataFrame:
    """The rows, in which what is lost has made no hop known: one that comes again and is accepted is right.

    Args:
        followed: :data:`reconcile.spark.schemas.FOLLOWED`.
        lost: As :func:`lost` has it.
    """
    marked = followed.join(lost.distinct().withColumn("gone", F.lit(True)), on=RECORD, how="left")
    rows = marked.withColumns(
        {
            "lost": F.col("lost") | (~F.col("kept") & F.coalesce("gone", F.lit(False))),
            "at": F.when(F.col("kept"), F.lit(-1)).otherwise(F.col("offset")),
            "noted": _noted(),
        }
    )
    for name in _PROMISED:
        rows = rows.withColumns(_same(name, _promised()))
    return rows.select(*FOLLOWED.names)


def evidence_of(followed: DataFrame) -> DataFrame:
    """The night's own rows, as evidence."""
    return followed.where(~F.col("kept")).select(*EVIDENCE.names)


def kept_on(followed: DataFrame, most: Column) -> DataFrame:
    """:data:`reconcile.spark.schemas.HOPS`: what later nights have to know, so that a resend is known then too.

    Of each way the largest that was confirmed, since its lane last forgot; and the hops that are not below it, the highest
    ``most`` of an address: a lane keeps no more.
    """
    on = "(capacity is null or capacity > 0)"
    judged = f"kept or ({ONCE} and not waiting and {on})"
    latest = F.max("hop_epoch").over(Window.partitionBy(*WAY))
    rows = followed.where(judged).withColumn("latest", latest).where("hop_epoch = latest")
    rows = rows.withColumn("floor", F.max("hop_confirmed").over(Window.partitionBy(*WAY)))
    place = F.struct("offset", "forward_offset")
    floors = rows.groupBy(*WAY).agg(
        F.max("floor").alias("hop_confirmed"),
        F.max_by(place, F.struct("hop_confirmed", "offset")).alias("place"),
    )
    above = (
        rows.where("hop_offset >= floor")
        .groupBy(*WAY, "hop_offset")
        .agg(F.min(place).alias("place"), F.max("accepted").alias("accepted"), F.min("lost").alias("lost"))
    )
    rank = F.row_number().over(Window.partitionBy(*WAY).orderBy(F.desc("hop_offset")))
    highest = above.withColumn("rank", rank).where(F.col("rank") <= most)
    both = highest.unionByName(floors, allowMissingColumns=True)
    found = both.withColumns({name: F.col(f"place.{name}") for name in ("offset", "forward_offset")})
    return found.select(*(F.col(hop.name).cast(hop.dataType) for hop in HOPS))
