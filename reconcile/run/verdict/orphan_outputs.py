"""Reads IDs and groups of outputs without an input again, because the evidence does not have them."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from reconcile.run.frames.frames import Frames
from reconcile.spark import outputs, topic_reader
from reconcile.spark.columns import Dialect
from reconcile.spark.schemas import ANOMALIES, DIVERTED, PASSED

READ_MAX: Final = 1_000_000
"""Limit of offsets to read again. If the outputs lie further apart, their IDs stay unnamed, and an operator
reads the records.
"""
_PLACE: Final = ("fate", "out_address", "out_partition", "out_offset")


def with_names(frames: Frames, found: DataFrame) -> DataFrame:
    """Add IDs and groups to :data:`reconcile.spark.schemas.ANOMALIES` of outputs."""
    own = found.withColumn("out_address", F.coalesce("out_address", "address"))
    spans = (
        own.where(F.col("fate").isin(*PASSED, DIVERTED))
        .groupBy("fate", "out_address", "out_partition")
        .agg(F.min("out_offset").alias("first"), (F.max("out_offset") + 1).alias("end"))
        .collect()
    )
    ranges = of_this_run(frames, spans)
    read_at_most = sum(end - first for spans in ranges.values() for first, end in spans.values())
    if not 0 < read_at_most <= READ_MAX:
        return found
    alike: dict[tuple[int, Dialect], dict[int, dict[int, tuple[int, int]]]] = {}
    for (fate, number), partitions in ranges.items():
        dialect = Dialect.of_address(frames.addresses[number])
        alike.setdefault((fate, dialect), {})[number] = partitions
    said = topic_reader.concatenated(
        [_said(frames, fate, dialect, several) for (fate, dialect), several in alike.items()]
    )
    both = own.join(said, on=list(_PLACE), how="left")
    names = {name: F.coalesce(name, f"out_{name}") for name in ("id", "group")}
    return both.withColumns(names).select(*ANOMALIES.names)


def of_this_run(frames: Frames, spans: Sequence[Row]) -> dict[tuple[int, int], dict[int, tuple[int, int]]]:
    """Return fate and address → partition → offsets. Outputs from the last run may be in a deleted topic."""
    ranges: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
    for row in spans:
        cut = frames.cuts[frames.addresses[row["out_address"]].name]
        topic = cut.accepted if row["fate"] in PASSED else cut.duplicates
        if topic is None or topic.recreated or row["out_partition"] >= len(topic.spans):
            continue
        span = topic.spans[row["out_partition"]]
        first, end = max(row["first"], span.read_from), min(row["end"], span.cut)
        if first < end:
            ranges.setdefault((row["fate"], row["out_address"]), {})[row["out_partition"]] = (first, end)
    return ranges


def _said(
    frames: Frames, fate: int, dialect: Dialect, several: dict[int, dict[int, tuple[int, int]]]
) -> DataFrame:
    """Return the names of outputs of addresses that share a dialect; ``several``: number of an address → partition → offsets."""
    role = "accepted_topic" if fate in PASSED else "duplicates_topic"
    numbers = {getattr(frames.addresses[number], role): number for number in several}
    ranges = {topic: several[number] for topic, number in numbers.items()}
    # Retention may delete records meanwhile, which does not change the verdict.
    records = topic_reader.scan(frames.spark, frames.options, ranges, whole=False)
    return outputs.named(records, dialect, fate, numbers).withColumn("fate", F.lit(fate))
