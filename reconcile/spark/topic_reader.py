"""Reads topics with Spark's Kafka source, and turns their records into columns."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from reconcile.session.session import FEW
from reconcile.spark import envelopes, hops
from reconcile.spark.columns import Dialect, by_topic, group_of, headers_digest, id_of, place_in, with_value
from ringfence_kafka.protocol import wire_names

RECORDS_A_TASK: Final = 1_000_000
ID_BYTES_MAX: Final = 256  # an audit replaces longer IDs by digests
Ranges = Mapping[str, Mapping[int, tuple[int, int]]]  # topic → partition → first offset, end offset


class Target(NamedTuple):
    """Address that parts may be sent to."""

    number: int
    name: str
    dialect: Dialect


class Targets(NamedTuple):
    """An address, and the other possible targets of its parts."""

    name: str
    others: tuple[Target, ...] = ()


def scan(spark: SparkSession, options: Mapping[str, str], ranges: Ranges, *, whole: bool = True) -> DataFrame:
    """Return committed records of these ranges, which must not exceed the last stable offset.

    Records without headers have null. With ``whole``, the read fails if retention deletes records meanwhile.
    """
    records = sum(end - begin for spans in ranges.values() for begin, end in spans.values())
    read = (
        spark.read.format("kafka")
        .options(**options)
        .option("assign", json.dumps({topic: sorted(spans) for topic, spans in ranges.items()}))
        .option("startingOffsets", _offsets(ranges, 0))
        .option("endingOffsets", _offsets(ranges, 1))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", str(whole).lower())
        .option("minPartitions", str(max(1, records // RECORDS_A_TASK)))
        .load()
    )
    # To start a task for each partition takes longer than to read few records.
    return read.coalesce(spark.sparkContext.defaultParallelism) if records < FEW else read


def _offsets(ranges: Ranges, side: int) -> str:
    return json.dumps(
        {
            topic: {str(number): span[side] for number, span in spans.items()}
            for topic, spans in ranges.items()
        }
    )


def inputs(
    records: DataFrame,
    dialect: Dialect,
    numbers: Mapping[str, int],
    targets: Mapping[str, Targets],
    chained: Collection[str] = (),
) -> DataFrame:
    """Return :data:`reconcile.spark.schemas.INPUTS`: each record, and the parts of envelopes.

    Args:
        records: Records of topics whose addresses share a dialect.
        dialect: That dialect.
        numbers: Topic → address.
        targets: Topic → its address, and the other targets of its parts.
        chained: Accepted topics of other addresses among the inputs.
    """
    others = {other.name: other for several in targets.values() for other in several.others}
    # parts get the hop columns of their envelope
    rows = envelopes.opened(
        hops.with_hops(_read_once(records, dialect, chained), chained),
        by_topic({topic: target.name for topic, target in targets.items()}, "string"),
        by_topic(
            {topic: [other.name for other in target.others] for topic, target in targets.items()},
            "array<string>",
        ),
    ).withColumn("address", by_topic(numbers, "int"))
    of_part = F.when(F.col("part_number") == 0, F.col("address"))
    for other in others.values():
        of_part = of_part.when(F.col("part_address") == other.name, other.number)
    rows = rows.withColumn("part_address", F.coalesce(of_part, F.col("address")))
    itself = F.col("parts").isNotNull() & (F.col("part_number") == 0)
    id_ = _of_part(id_of, dialect, others.values())
    if dialect.by_value:  # values of envelopes and parts do not count
        id_ = F.when(F.col("parts").isNull(), with_value(id_)).otherwise(id_)
    said = {
        "id": F.when(~F.col("ids_ignored"), id_),
        "group": F.when(itself, F.col("key")).otherwise(_of_part(group_of, dialect, others.values())),
        **_digests(),
    }
    return rows.select(
        "address", "partition", "offset", "part_number", "parts", "part_address",
        F.unix_millis("timestamp").alias("timestamp"),
        *(
            F.when(F.col("special"), column).otherwise(F.col("plain")[name]).alias(name)
            for name, column in said.items()
        ),
        "hop_source", "hop_offset", "hop_confirmed", "passed_digest",
    )  # fmt: skip


def _read_once(records: DataFrame, dialect: Dialect, chained: Collection[str]) -> DataFrame:
    """Put all columns of plain records into ``plain``. Other records keep key, value and headers.

    Most records are plain, and later steps would copy their content several times.
    """
    special = envelopes.is_envelope() | hops.is_bridged() | hops.is_traced(chained)
    id_ = with_value(id_of(dialect)) if dialect.by_value else id_of(dialect)
    said = {"id": id_, "group": group_of(dialect), **_digests()}
    return records.select(
        "topic", "partition", "offset", "timestamp", special.alias("special"),
        F.struct(*(F.when(~special, column).alias(name) for name, column in said.items())).alias("plain"),
        *(F.when(special, F.col(name)).alias(name) for name in ("key", "value", "headers")),
    )  # fmt: skip


def _digests() -> dict[str, Column]:
    return {
        "key_digest": F.xxhash64("key"),
        "value_digest": F.xxhash64("value"),
        "value_bytes": F.length("value"),
        "headers_digest": headers_digest(),
    }


def _of_part(read: Callable[[Dialect], Column], own: Dialect, others: Iterable[Target]) -> Column:
    """Return a value read by the dialect of the row's target."""
    found: Column | None = None
    for other in others:
        if other.dialect != own:
            here = F.col("part_address") == other.number
            found = (
                F.when(here, read(other.dialect)) if found is None else found.when(here, read(other.dialect))
            )
    return read(own) if found is None else found.otherwise(read(own))


def audited(records: DataFrame, dialect: Dialect) -> DataFrame:
    """Return the records of an audited topic, with digests of long IDs, as in a ring."""
    found = id_of(dialect)
    return hops.with_hops(records).select(
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp"),
        F.when(F.length(found) > ID_BYTES_MAX, F.unhex(F.sha2(found, 256))).otherwise(found).alias("id"),
        # an envelope's key determines its lane, whatever the address's groups are
        F.when(envelopes.is_envelope(), F.col("key")).otherwise(group_of(dialect)).alias("group"),
        (F.col("key") if dialect.group_header else F.lit(None).cast("binary")).alias("key"),
        F.col("key").isNotNull().alias("keyed"),
        F.col("value").isNull().alias("tombstone"),
        F.xxhash64("value").alias("value_digest"),
        envelopes.is_envelope().alias("envelope"),
        "hop_source",
        "hop_offset",
        "ids_ignored",
    )


def headers_of(records: DataFrame) -> DataFrame:
    """Return a row for each header of each record: ``name`` and ``value``. For few records."""
    return records.select(F.explode("headers").alias("header")).select(
        F.col("header.key").alias("name"), F.col("header.value").alias("value")
    )


def forwards(records: DataFrame, input_topics: Mapping[str, str], numbers: Mapping[str, int]) -> DataFrame:
    """Return :data:`reconcile.spark.schemas.FORWARDS`. ``input_topics``: forward topic → input topic."""
    said = records.select(
        "topic",
        "partition",
        "offset",
        envelopes.header(wire_names.HEADER_SOURCE).cast("string").alias("text"),
    )
    named = said.withColumn("source", place_in(F.col("text"), by_topic(input_topics, "string")))
    return named.where("source is not null").select(
        by_topic(numbers, "int").alias("address"),
        "source.partition",
        "source.offset",
        F.col("partition").alias("lane"),
        F.col("offset").alias("forward_offset"),
    )


def concatenated(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the union of one or more frames, built by halves: Spark reads a plan again at each step that is added."""
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    return concatenated(frames[:middle]).unionByName(concatenated(frames[middle:]))
