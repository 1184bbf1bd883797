"""Matches inputs with outputs by the place of the input, with one shuffle of each side.

All later steps read the result, but only the columns that they need.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconcile.spark.columns import of_schema
from reconcile.spark.schemas import ACCEPTED, EVIDENCE, FORWARDED, IDS, INPUTS, OUTPUTS, PASSED, QUARANTINED

RECORD = ["address", "partition", "offset"]  # place of an input record
PLACE = [*RECORD, "part_number"]
"""Join key: place of an input record, or of a part in its value. Part 0 is the record itself."""
_SORTED = ["offset", "partition", "address", "part_number"]
"""The same columns, the most selective first: a sort then rarely compares the others."""
FIRST = "has_input and (nth is null or nth = 1)"  # condition on evidence: each record and each part once
ONCE = f"{FIRST} and part_number = 0"  # condition on evidence: each input record once
WITHOUT_INPUT = "not has_input"  # condition on evidence: output or forward without an input
_OF_OUTPUTS = ["nth", *(name for name in OUTPUTS.names if name not in PLACE)]


FORWARDED_ROUTE: Final = -1


def route() -> Column:
    """Return the lane's input of a row: its partition or :data:`FORWARDED_ROUTE`. Each is read in order."""
    return F.when(F.col("forward_offset").isNotNull(), FORWARDED_ROUTE).otherwise(F.col("partition"))


def attribute(
    inputs: DataFrame,
    forwards: DataFrame | None,
    outputs: DataFrame,
    forward_committed: DataFrame,
    *,
    waited: bool = True,
    ring: Column | None = None,
) -> DataFrame:
    """Match inputs, forwarded inputs and outputs into :data:`reconcile.spark.schemas.EVIDENCE`.

    Args:
        inputs: Inputs, once each; those that waited in the last run have a lane and a forward offset.
        forwards: Forwarded inputs; None = none.
        outputs: Outputs that name an input. The result numbers those of one input (``nth``), accepted first.
        forward_committed: :data:`reconcile.spark.schemas.FORWARD_COMMITTED`.
        waited: Some inputs waited in the last run. If none did and nothing was forwarded, none waits now.
        ring: Column with the ring that judges an input in its own partition; None = the partition's.
    """
    known = inputs.withColumn("has_input", F.lit(True))
    if forwards is not None:
        known = _forwarded(known, forwards)
    order = Window.partitionBy(*_SORTED).orderBy("fate", "out_partition", "out_offset")
    numbered = _scattered(outputs).withColumn("nth", F.row_number().over(order))
    both = known.join(numbered, on=_SORTED, how="full_outer").withColumn(
        "has_input", F.coalesce("has_input", F.lit(False))
    )
    own = F.col("partition") if ring is None else ring
    both = both.withColumn("lane", F.coalesce("lane", F.when(F.col("has_input"), own)))
    if forwards is None and not waited:
        return both.withColumn("waiting", F.lit(False)).select(*_columns())
    both = both.join(F.broadcast(forward_committed), on=["address", "lane"], how="left")
    return _parted(both).select(*_columns())


def _forwarded(inputs: DataFrame, forwards: DataFrame) -> DataFrame:
    """Add lane and forward offset to the inputs, and add rows for forwards of unknown inputs."""
    first = forwards.groupBy(*RECORD).agg(F.min(F.struct("forward_offset", "lane")).alias("forward"))
    both = inputs.join(first, on=RECORD, how="full_outer")
    return both.withColumns(
        {
            "has_input": F.coalesce("has_input", F.lit(False)),
            "part_number": F.coalesce("part_number", F.lit(0)),
            "lane": F.coalesce("lane", "forward.lane"),
            "forward_offset": F.coalesce("forward_offset", "forward.forward_offset"),
        }
    ).drop("forward")


def _scattered(outputs: DataFrame) -> DataFrame:
    """Give outputs without an input artificial negative places: else a single task would get them all."""
    nowhere = F.col("partition").isNull()
    return outputs.withColumns(
        {
            "partition": F.when(nowhere, -1 - F.col("fate") - 4 * F.col("out_partition")).otherwise(
                F.col("partition")
            ),
            "offset": F.when(nowhere, -1 - F.col("out_offset")).otherwise(F.col("offset")),
        }
    )


def _parted(both: DataFrame) -> DataFrame:
    """Split waiting inputs from their outputs, which lie beyond the home lane's cut.

    The same lane may have judged records just before them. These lie beyond the cut of its own input, and a
    later run judges them too.
    """
    waiting = F.coalesce(F.col("has_input") & (F.col("forward_offset") >= F.col("committed")), F.lit(False))
    early = waiting & F.col("fate").isNotNull()
    sides = (
        F.when(early & (F.col("nth") == 1), F.array(F.lit(True), F.lit(False)))
        .when(early, F.array(F.lit(False)))
        .otherwise(F.array(F.col("has_input")))
    )
    parted = both.withColumns({"waiting": waiting, "early": early}).withColumn("has_input", F.explode(sides))
    of_input = F.col("early") & F.col("has_input")
    return parted.withColumns({output: F.when(~of_input, F.col(output)) for output in _OF_OUTPUTS})


def _columns() -> list[Column]:
    has_input, fate = F.col("has_input"), F.col("fate")
    accepted, quarantined = fate.isin(*PASSED), fate == QUARANTINED
    both = has_input & fate.isNotNull()
    of_part = both & accepted & (F.col("part_number") > 0)
    key_changed = ~F.col("key_digest").eqNullSafe(F.col("out_key_digest")) | (
        accepted & (F.col("out_group_digest") != F.xxhash64("group"))
    )
    # Quarantine replaces a value that is too large by its size, 0 for a null value. It may leave out key and
    # headers too.
    stands_in = quarantined & F.col("out_value_bytes").eqNullSafe(F.coalesce("value_bytes", F.lit(0)))
    value_changed = (F.col("value_digest") != F.col("out_value_digest")) & ~stands_in
    passed_changed = accepted & ~F.col("passed_digest").eqNullSafe(F.col("out_passed_digest"))
    # Workers that keep the whole value in quarantine keep key and headers too; they drop all three together.
    key_kept = ~quarantined | (
        (F.col("value_digest") == F.col("out_value_digest"))
        & (F.col("headers_digest") == F.col("out_headers_digest"))
    )
    headers_changed = (F.col("headers_digest") != F.col("out_headers_digest")) | passed_changed
    somewhere = (F.col("partition") >= 0) | (F.col("offset") >= 0)
    changed = {
        "key": both & key_changed & key_kept,
        "value": both & value_changed,
        "headers": both & headers_changed & ~quarantined,
        "address": of_part & (F.col("part_address") != F.col("out_address")),
        "parts": of_part & (F.col("parts") != F.col("out_parts")),
        "timestamp": both & accepted & (F.col("timestamp") != F.col("out_timestamp")),
    }
    kept = ("key_digest", "value_digest", "value_bytes", "headers_digest", "passed_digest")
    special: dict[str, Column] = {
        "partition": F.when(somewhere, F.col("partition")),
        "offset": F.when(somewhere, F.col("offset")),
        "fate": F.coalesce(fate, F.when(~has_input, FORWARDED)),
        # an output without a known input gives its own timestamp and parts
        "timestamp": F.when(has_input, F.col("timestamp")).otherwise(F.col("out_timestamp")),
        "parts": F.when(has_input, F.col("parts")).otherwise(F.col("out_parts")),
        **{f"{name}_changed": F.coalesce(column, F.lit(False)) for name, column in changed.items()},
        "whole": fate,
        "came": F.lit(None),
        "ids": F.col("id").isNotNull().cast("int"),
        "home_digest": F.xxhash64("group"),
        "resent": F.lit(False),
        "after_new": F.lit(False),
        # keep digests if only one side exists: the next run compares them
        **{name: F.when(~has_input, F.col(f"out_{name}")).when(fate.isNull(), F.col(name)) for name in kept},
        "value_digest": F.when(has_input, F.col("value_digest")).otherwise(F.col("out_value_digest")),
        "group_digest": F.when(~has_input, F.col("out_group_digest")),
    }
    return of_schema(EVIDENCE, special)


def carried_inputs(evidence: DataFrame) -> DataFrame:
    """Return inputs that wait for their home lane, for the next run."""
    return evidence.where("waiting and has_input").select(*of_schema(INPUTS, {}), "lane", "forward_offset")


def carried_forwards(ahead: DataFrame) -> DataFrame:
    """Return forwards of inputs beyond the cut, for the next run."""
    return ahead.where("forward_offset is not null").select(*RECORD, "lane", "forward_offset").distinct()


def carried_outputs(ahead: DataFrame) -> DataFrame:
    """Return outputs of inputs beyond the cut, for the next run."""
    content = ("key_digest", "value_digest", "value_bytes", "headers_digest", "passed_digest")
    columns = {f"out_{name}": F.col(name) for name in ("parts", "timestamp", "group_digest", *content)}
    return ahead.where(F.col("fate") != FORWARDED).select(*of_schema(OUTPUTS, columns))


def ahead(evidence: DataFrame, spans: DataFrame) -> DataFrame:
    """Return evidence on inputs beyond the cut, and outputs of waiting inputs, for the next run."""
    strays = evidence.where(WITHOUT_INPUT).join(F.broadcast(spans), on=["address", "partition"], how="inner")
    return strays.where("waiting or (offset >= cut and offset < end)").drop(
        *(column for column in spans.columns if column not in PLACE)
    )


def accepted_ids(evidence: DataFrame, run: int) -> DataFrame:
    """Return :data:`reconcile.spark.schemas.IDS` of this run, without positions."""
    # The envelope's own ID has no group; only the parts have one.
    in_group = F.col("parts").isNull() | (F.col("part_number") > 0)
    special = {
        "id_address": F.col("part_address"),
        "group_digest": F.when(in_group, F.xxhash64("group")),
        "position": F.lit(None),
        "run": F.lit(run),
    }
    accepted = F.expr(FIRST) & (F.col("whole") == ACCEPTED) & F.col("id").isNotNull()
    return evidence.where(accepted).select(*of_schema(IDS, special))
