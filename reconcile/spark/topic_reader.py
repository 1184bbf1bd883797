"""Reads topics with Spark's Kafka source, and brings their records into columns."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from reconcile.spark import envelopes, hops
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names

RECORDS_A_TASK: Final = 1_000_000
HEADERS_FEW: Final = 4
"""Most records have no more headers."""
ID_BYTES_MAX: Final = 256
"""An audit keeps longer IDs as digests."""
OURS: Final = (
    wire_names.HEADER_SOURCE, wire_names.HEADER_KEY, wire_names.HEADER_ORIGINAL, wire_names.HEADER_REASON, wire_names.HEADER_TIMESTAMP, wire_names.HEADER_CONSUMER_GROUP,
    wire_names.HEADER_ATTEMPTS, wire_names.HEADER_REDRIVEN, wire_names.HEADER_TRANSACTION, wire_names.HEADER_PART, wire_names.HEADER_BRIDGE_APP, wire_names.HEADER_HOPS,
    *hops.OF_BRIDGES,
)  # fmt: skip
"""Names of headers that Ringfence writes, replaces or leaves out. Every other header is the producer's: it must come out as it went in."""
Ranges = Mapping[str, Mapping[int, tuple[int, int]]]
"""Topic → partition → offsets from, to."""


class Dialect(NamedTuple):
    """How the addresses that share it name ID and group: their topics are read in one scan."""

    id_headers: tuple[str, ...]
    id_from: str
    group_header: str
    default_group: str

    @classmethod
    def of(cls, address: AddressSettings) -> "Dialect":
        """That of an address."""
        return cls(
            address.duplicate_id_headers,
            address.duplicate_id_from,
            address.group_header,
            address.default_group,
        )


class Target(NamedTuple):
    """An address that parts may be for."""

    number: int
    name: str
    dialect: Dialect


class Targets(NamedTuple):
    """An address, and those that parts of its envelopes may be for, besides."""

    name: str
    others: tuple[Target, ...] = ()


def scan(spark: SparkSession, options: Mapping[str, str], ranges: Ranges, *, whole: bool = True) -> DataFrame:
    """The committed records of these ranges; each must end at or below the last stable offset. Null headers = there are none.

    It fails, rather than go on without, when retention deletes something meanwhile; ``whole`` = False: it goes on.
    """
    records = sum(end - begin for offset_range in ranges.values() for begin, end in offset_range.values())
    return (
        spark.read.format("kafka")
        .options(**options)
        .option("assign", json.dumps({topic: sorted(offset_range) for topic, offset_range in ranges.items()}))
        .option("startingOffsets", _offsets(ranges, 0))
        .option("endingOffsets", _offsets(ranges, 1))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", str(whole).lower())
        .option("minPartitions", str(max(1, records // RECORDS_A_TASK)))
        .load()
    )


def _offsets(ranges: Ranges, side: int) -> str:
    return json.dumps(
        {
            topic: {str(number): span[side] for number, span in offset_range.items()}
            for topic, offset_range in ranges.items()
        }
    )


def inputs(
    records: DataFrame,
    dialect: Dialect,
    numbers: Mapping[str, int],
    targets: Mapping[str, Targets],
    chained: Collection[str] = (),
) -> DataFrame:
    """:data:`reconcile.spark.schemas.INPUTS`: each record, and the parts of those that are envelopes.

    Args:
        records: Of topics whose addresses share a dialect.
        dialect: Theirs.
        numbers: Topic → address.
        targets: Topic → its address, and those that parts of its envelopes may be for.
        chained: Topics that are the accepted topics of other addresses.
    """
    others = {other.name: other for several in targets.values() for other in several.others}
    # Parts have what is said of their envelope's hop.
    rows = envelopes.opened(
        hops.with_hops(_read_once(records, dialect, chained), chained),
        _mapped({topic: F.lit(target.name) for topic, target in targets.items()}),
        _mapped({topic: _names(target.others) for topic, target in targets.items()}),
    ).withColumn("address", address_of(numbers))
    of_part = F.when(F.col("part_number") == 0, F.col("address"))
    for each in others.values():
        of_part = of_part.when(F.col("part_address") == each.name, F.lit(each.number))
    rows = rows.withColumn("part_address", F.coalesce(of_part, F.col("address")))
    itself = F.col("parts").isNotNull() & (F.col("part_number") == 0)
    said = {
        "id": F.when(~F.col("ids_ignored"), _of_part(id_of, dialect, others.values())),
        "group": F.when(itself, F.col("key")).otherwise(_of_part(group_of, dialect, others.values())),
        **_digests(),
    }
    return rows.select(
        "address",
        "partition",
        "offset",
        "part_number",
        "parts",
        "part_address",
        F.unix_millis("timestamp").alias("timestamp"),
        *(
            F.when(F.col("special"), column).otherwise(F.col("plain")[name]).alias(name)
            for name, column in said.items()
        ),
        "hop_source",
        "hop_offset",
        "hop_confirmed",
        "passed_digest",
    )


def _read_once(records: DataFrame, dialect: Dialect, chained: Collection[str]) -> DataFrame:
    """What plain records say, read at once, in ``plain``. Key, value and headers stay only with envelopes and what came over bridges.

    Most records are plain, and what follows would copy all that they hold several times.
    """
    special = envelopes.is_envelope() | hops.is_bridged() | hops.is_traced(chained)
    said = {"id": id_of(dialect), "group": group_of(dialect), **_digests()}
    return records.select(
        "topic", "partition", "offset", "timestamp", special.alias("special"),
        F.struct(*(F.when(~special, column).alias(name) for name, column in said.items())).alias("plain"),
        *(F.when(special, F.col(name)).alias(name) for name in ("key", "value", "headers")),
    )  # fmt: skip


def _digests() -> dict[str, Column]:
    """By which outputs are compared with their input."""
    return {
        "key_digest": F.xxhash64("key"),
        "value_digest": F.xxhash64("value"),
        "value_bytes": F.length("value"),
        "headers_digest": headers_digest(),
    }


def _names(others: Sequence[Target]) -> Column:
    return F.array(*(F.lit(other.name) for other in others)).cast("array<string>")


def _of_part(read: Callable[[Dialect], Column], own: Dialect, others: Iterable[Target]) -> Column:
    """What is read as the address says that the row is for."""
    found: Column | None = None
    for other in others:
        if other.dialect != own:
            here = F.col("part_address") == other.number
            found = (
                F.when(here, read(other.dialect)) if found is None else found.when(here, read(other.dialect))
            )
    return read(own) if found is None else found.otherwise(read(own))


def audited(records: DataFrame, dialect: Dialect) -> DataFrame:
    """:data:`reconcile.spark.schemas.AUDITED`, of one topic. Long IDs are kept as digests, as in a ring."""
    found = id_of(dialect)
    return hops.with_hops(records).select(
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp"),
        F.when(F.length(found) > ID_BYTES_MAX, F.unhex(F.sha2(found, 256))).otherwise(found).alias("id"),
        # The key of an envelope decides where it is judged, whatever groups its address has.
        F.when(envelopes.is_envelope(), F.col("key")).otherwise(group_of(dialect)).alias("group"),
        (F.col("key") if dialect.group_header else F.lit(None).cast("binary")).alias("key"),
        F.col("key").isNotNull().alias("keyed"),
        F.col("value").isNull().alias("tombstone"),
        envelopes.is_envelope().alias("envelope"),
        "hop_source",
        "hop_offset",
        "ids_ignored",
    )


def has_id(dialect: Dialect) -> Column:
    """Whether a record, or a part of a transaction, has a duplicate ID."""
    return id_of(dialect).isNotNull()


def headers_of(records: DataFrame) -> DataFrame:
    """A row a header of each record: its ``name`` and ``value``. For few records."""
    return records.select(F.explode("headers").alias("header")).select(
        F.col("header.key").alias("name"), F.col("header.value").alias("value")
    )


def forwards(records: DataFrame, input_topics: Mapping[str, str], numbers: Mapping[str, int]) -> DataFrame:
    """:data:`reconcile.spark.schemas.FORWARDS`; ``input_topics``: forward topic → input topic."""
    said = records.select(
        "topic", "partition", "offset", header(wire_names.HEADER_SOURCE).cast("string").alias("text")
    )
    named = said.withColumn("source", place_in(F.col("text"), topic_of(input_topics)))
    return named.where("source is not null").select(
        address_of(numbers).alias("address"),
        "source.partition",
        "source.offset",
        F.col("partition").alias("lane"),
        F.col("offset").alias("forward_offset"),
    )


# -- columns -------------------------------------------------------------------------------------------------------


def address_of(numbers: Mapping[str, int]) -> Column:
    """The address of a record, by its topic."""
    return _mapped({topic: F.lit(number) for topic, number in numbers.items()})


def topic_of(topics: Mapping[str, str]) -> Column:
    """The one that belongs to the record's topic."""
    return _mapped({topic: F.lit(named) for topic, named in topics.items()})


def _mapped(values: Mapping[str, Column]) -> Column:
    """By the topic; a chain of comparisons is compiled, a look into a map is not."""
    (first, value), *rest = values.items()
    if not rest:
        return value
    found = F.when(F.col("topic") == first, value)
    for topic, column in rest:
        found = found.when(F.col("topic") == topic, column)
    return found


def header(name: str) -> Column:
    """The value of a header; of repeats the last, as in Kafka. Null = missing or null."""
    return envelopes.last("headers", name)


def id_of(dialect: Dialect) -> Column:
    """HornetQ's duplicate ID: bytes; null = none. A digest stands for a value. An empty value is not an ID."""
    if dialect.id_from == "key":
        return F.when(F.length("key") > 0, F.col("key"))
    if dialect.id_from == "value":
        return F.when(F.length("value") > 0, F.unhex(F.sha2("value", 256)))
    return F.coalesce(*(F.when(F.length(header(name)) > 0, header(name)) for name in dialect.id_headers))


def group_of(dialect: Dialect) -> Column:
    """Null = none. Where a header names it, one that is missing or empty means the default group."""
    if not dialect.group_header:
        return F.col("key")
    named = header(dialect.group_header)
    return F.when(F.length(named) > 0, named).otherwise(F.lit(dialect.default_group.encode()))


def headers_digest() -> Column:
    """Of the user's headers, in order, repeats and nulls included; Ringfence's own are left out.

    A digest of an array is that of what it holds, one after the other, and skips nulls: of few headers it is taken without making
    an array, which is compiled.
    """
    users = F.filter("headers", _is_users)
    # A digest skips nulls, so that it is told where they are.
    of_many = F.xxhash64(
        F.transform(users, lambda each: F.struct(each["key"], each["value"].isNull(), each["value"]))
    )
    told = []
    for number in range(HEADERS_FEW):
        each = F.get(F.col("headers"), F.lit(number))
        counts = _is_users(each)
        told += [
            F.when(counts, each["key"]),
            F.when(counts, each["value"].isNull()),
            F.when(counts, each["value"]),
        ]
    return F.when(F.coalesce(F.size("headers"), F.lit(0)) <= HEADERS_FEW, F.xxhash64(*told)).otherwise(
        of_many
    )


def _is_users(header: Column) -> Column:
    return ~header["key"].isin(*OURS)


def place(name: str, topic: Column) -> Column:
    """The place of an input record that a header names; null where it is no place of that topic."""
    return place_in(header(name).cast("string"), topic)


def place_in(text: Column, topic: Column) -> Column:
    """As :func:`place`, of what the header says. It is looked at several times: a column spares looking for the header as often."""
    begins = F.concat(topic, F.lit("/"))
    rest = F.substr(text, F.length(begins) + 1)
    texts = (F.substring_index(rest, "/", 1), F.substring_index(rest, "/", -1))
    sound = F.startswith(text, begins) & (rest == F.concat_ws("/", *texts))
    partition, offset = texts[0].try_cast("int"), texts[1].try_cast("bigint")
    found = F.struct(partition.alias("partition"), offset.alias("offset"))
    return F.when(sound & partition.isNotNull() & offset.isNotNull(), found)


def concatenated(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of one frame or several."""
    whole, *rest = frames
    for data_frame in rest:
        whole = whole.unionByName(data_frame)
    return whole
