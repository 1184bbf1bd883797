"""Matches inputs with outputs, and writes the evidence that all later steps read."""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from reconcile.run.frames import evidence as ev
from reconcile.run.frames import hops, ring_numbers
from reconcile.run.frames.evidence import PLACE, RECORD
from reconcile.run.frames.workspace import Workspace
from reconcile.spark.schemas import EVIDENCE, PASSED

OF_UNITS = "has_input and parts is not null"  # condition on evidence: envelopes and their parts
_OUT = ["out_address", "out_partition", "out_offset"]
_ORIGINAL = ["original", "original_partition", "original_offset"]
_FLAGS = [name for name in EVIDENCE.names if name.endswith("_changed")]
_HAPPENED = ["fate", "nth", "marked", *_OUT, *_ORIGINAL]


def matched(
    workspace: Workspace, events: DataFrame | None, grown: DataFrame | None
) -> tuple[DataFrame, DataFrame | None]:
    """Return the evidence, and :data:`reconcile.spark.schemas.FOLLOWED`, or None without bridged records."""
    frames = workspace.frames
    ahead = frames.ahead()
    matched = ev.attribute(
        frames.inputs(),
        frames.forwards(ahead),
        frames.outputs(ahead),
        frames.forward_committed(),
        waited=frames.carries(),
        ring=ring_numbers.of_inputs(frames.ring_numbers()),
    )
    evidence = workspace.scratch("evidence", matched)
    of_units, of_hops = (F.count_if(F.expr(name)) for name in (OF_UNITS, hops.OF_HOPS))
    [(envelopes, bridged)] = evidence.agg(of_units, of_hops).collect()
    if envelopes:
        units = joined(evidence.where(OF_UNITS)).unionByName(as_plain(evidence))
        units = workspace.scratch("units", units)
        evidence = evidence.where(f"not ({OF_UNITS})").unionByName(units)
    kept = frames.hops()
    if kept is None and not bridged:
        return evidence, None
    rings = frames.ring_numbers()
    present = ring_numbers.present(rings) if any(item.regroups for item in rings) else None
    followed = hops.followed(evidence.where(hops.OF_HOPS), kept, events, grown, present)
    followed = workspace.scratch("hops", followed)
    others = evidence.where(~F.coalesce(F.expr(hops.OF_HOPS), F.lit(False)))
    return others.unionByName(hops.evidence_of(followed)), followed


def _itself() -> Column:
    """Return whether a row is the envelope, not a part."""
    return F.col("part_number") == 0


def joined(envelopes: DataFrame) -> DataFrame:
    """Add to each row of :data:`OF_UNITS` what it needs from the other rows of its unit.

    ``whole``, and ``fate`` of the envelope: accepted if any part was, observed if parts passed as duplicates,
    else the fate that an output shows. A part without an output gets the place of the first part with one. An
    ID counts only for its first part.
    """
    rows = _refused_as_plain(envelopes)
    unit = Window.partitionBy(*RECORD)
    first = F.coalesce(F.col("nth"), F.lit(1)) == 1
    came = first & ~_itself() & F.col("fate").isin(*PASSED)
    known = rows.withColumns(
        {
            "came": F.sum(F.coalesce(came, F.lit(False)).cast("int")).over(unit).cast("int"),
            "other": F.min(F.when(_itself(), F.col("fate"))).over(unit),
            "key": F.max(F.when(_itself(), F.col("group"))).over(unit),
            "own_sequence": _own_sequence(unit, came),
            "made": F.min(F.when(came, F.struct("part_number", *_OUT, *_ORIGINAL, "marked"))).over(unit),
            "passed": F.min(F.when(came, F.col("fate"))).over(unit),
            "said": F.min(F.when(_itself() & F.col("fate").isNotNull(), F.struct("nth", *_ORIGINAL, *_OUT))).over(unit),
            "again": F.row_number().over(
                Window.partitionBy(*RECORD, "part_address", "id").orderBy("part_number", "nth")
            ),
        }
    ).withColumns(
        {
            "whole": F.coalesce("passed", "other"),
            "id": F.when(F.col("again") == 1, F.col("id")),
        }
    )  # fmt: skip
    counted = known.withColumns(
        {
            "ids": F.count("id").over(unit).cast("int"),
            "led": F.min(F.when(F.col("id").isNotNull(), F.struct("part_number", "id"))).over(unit),
        }
    )
    # Without a key, the first ID gives the home, and the unit has a group all the same.
    led = F.when(F.col("key").isNull(), F.xxhash64("led.id", F.lit(0))).otherwise(F.xxhash64("key"))
    own = _with_its_own_row(counted.withColumn("home_digest", led))
    return own.select(*EVIDENCE.names)


def _own_sequence(unit: WindowSpec, came: Column) -> Column:
    """Return the sequence number of the envelope's own ID.

    A ring takes the envelope's own ID first, and then those of the parts, in order. Parts without an ID carry
    the number of the envelope's ID. If all parts have IDs, it is the number before theirs.
    """
    own = F.max(F.when(_itself(), F.col("id"))).over(unit)
    same = F.col("id").eqNullSafe(own) & (F.col("part_address") == F.col("address"))
    shared = F.min(F.when(came & (F.col("id").isNull() | same), F.col("sequence"))).over(unit)
    before = F.min(F.when(came, F.col("sequence"))).over(unit) - 1
    return F.coalesce(shared, before)


def _refused_as_plain(envelopes: DataFrame) -> DataFrame:
    """Remove outputs that show an envelope as one accepted message; the envelope remains as an input."""
    plain = _itself() & F.col("fate").isin(*PASSED)
    rows = envelopes.withColumns(
        {name: F.when(~F.coalesce(plain, F.lit(False)), F.col(name)) for name in _HAPPENED}
    )
    rows = rows.withColumns({flag: F.col(flag) & F.col("fate").isNotNull() for flag in _FLAGS})
    order = Window.partitionBy(*PLACE).orderBy(F.asc_nulls_last("fate"), "nth")
    numbered = rows.withColumn("at", F.row_number().over(order)).where("fate is not null or at = 1")
    return numbered.withColumn("nth", F.when(F.col("fate").isNotNull(), F.col("at"))).drop("at")


def as_plain(matched: DataFrame) -> DataFrame:
    """Return the outputs that :func:`joined` removes, as outputs without an input."""
    found = matched.where(f"{OF_UNITS} and part_number = 0 and fate in {PASSED}")
    changed = {flag: F.lit(False) for flag in _FLAGS}
    return found.withColumns({**changed, "has_input": F.lit(False)}).select(*EVIDENCE.names)


def _with_its_own_row(rows: DataFrame) -> DataFrame:
    """Add a row for the output of an accepted envelope itself, before the rows of its parts."""
    accepted = _itself() & (F.col("came") > 0)
    one = F.coalesce(F.col("nth"), F.lit(1)) == 1
    sides = (
        F.when(accepted & one & F.col("fate").isNotNull(), F.array(F.lit(True), F.lit(False)))
        .when(accepted & F.col("fate").isNull(), F.array(F.lit(True)))
        .otherwise(F.array(F.lit(False)))
    )
    both = rows.withColumn("together", F.explode(sides))
    together = F.col("together")
    own: dict[str, Column] = {
        "fate": F.when(together, F.col("whole")).otherwise(F.col("fate")),
        "marked": F.when(together, F.col("made.marked")).otherwise(F.col("marked")),
        "nth": F.when(together, 1).otherwise(F.col("nth") + accepted.cast("int")),
        "id": F.when(together | ~accepted, F.col("id")),
        "sequence": F.when(together, F.col("own_sequence")).otherwise(F.col("sequence")),
    }
    place = {
        name: F.when(together, F.col(f"made.{name}")).otherwise(
            F.coalesce(name, F.col(f"made.{name}"), F.col(f"said.{name}"))
        )
        for name in _OUT
    }
    original = {name: F.coalesce(name, F.col(f"said.{name}"), F.col(f"made.{name}")) for name in _ORIGINAL}
    unchanged = {flag: F.col(flag) & ~together for flag in _FLAGS}
    return both.withColumns({**own, **place, **original, **unchanged})
