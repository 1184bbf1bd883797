"""Columns of a record: address, ID, group, digest of headers, places in headers; and columns of a schema."""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from reconcile.spark import envelopes, hops, id_parts
from reconcile.spark.constants import constant, value_of
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names

HEADERS_FEW: Final = 4  # few records have more headers
OURS: Final = (
    wire_names.HEADER_SOURCE, wire_names.HEADER_KEY, wire_names.HEADER_ORIGINAL, wire_names.HEADER_REASON, wire_names.HEADER_TIMESTAMP, wire_names.HEADER_CONSUMER_GROUP,
    wire_names.HEADER_ATTEMPTS, wire_names.HEADER_REDRIVEN, wire_names.HEADER_TRANSACTION, wire_names.HEADER_PART, wire_names.HEADER_BRIDGE_APP, wire_names.HEADER_HOPS,
    wire_names.HEADER_SEQUENCE, wire_names.HEADER_VERDICT,
    *hops.OF_BRIDGES,
)  # fmt: skip
"""Headers that Ringfence writes, replaces or leaves out; all others must come out unchanged."""


class Dialect(NamedTuple):
    """Settings by which addresses name ID and group. Topics with the same dialect share a scan."""

    id_headers: tuple[str, ...]
    id_from: str | tuple[str, ...]
    group_header: str
    default_group: str
    by_value: bool = False
    """Whether an ID with another value is another message."""

    @classmethod
    def of_address(cls, address: AddressSettings) -> "Dialect":
        """Return the dialect of an address."""
        return cls(
            address.duplicate_id_headers,
            address.duplicate_id_from,
            address.group_header,
            address.default_group,
            address.on_conflict == "accept",
        )


def of_schema(
    schema: StructType, special: Mapping[str, Column], there: Collection[str] | None = None
) -> list[Column]:
    """Return the columns of a schema: expressions in ``special``, names ``there`` (None = all), else null."""
    return [
        special.get(field.name, F.col(field.name) if there is None or field.name in there else F.lit(None))
        .cast(field.dataType)
        .alias(field.name)
        for field in schema
    ]


def address_of(numbers: Mapping[str, int]) -> Column:
    """Return the address number for the record's topic."""
    return by_topic(numbers, "int")


def topic_of(topics: Mapping[str, str]) -> Column:
    """Return the text for the record's topic."""
    return by_topic(topics, "string")


def by_topic(values: Mapping[str, Any], kind: str) -> Column:
    """Return a value by the topic, which is a key of ``values``; ``kind``: Spark's name of a value's type."""
    if len(values) == 1:
        return F.get(constant([*values.values()], f"array<{kind}>"), F.lit(0))
    return value_of(values, kind, F.col("topic"))


def header(name: str) -> Column:
    """Return a header's value, the last one if it is repeated, as in Kafka. Null = missing or null."""
    return envelopes.last("headers", name)


def id_of(dialect: Dialect) -> Column:
    """Return HornetQ's ID in bytes, null = none. A digest stands for a value; an empty one is not an ID."""
    if not isinstance(dialect.id_from, str):
        return id_parts.composed([id_parts.part(form) for form in dialect.id_from])
    if dialect.id_from != "header":
        return id_parts.part(dialect.id_from)
    return F.coalesce(*(F.when(F.length(header(name)) > 0, header(name)) for name in dialect.id_headers))


def with_value(id_: Column) -> Column:
    """Return an ID together with a digest of the record's value, where null counts as empty."""
    digest = F.hex(F.xxhash64(F.coalesce("value", F.lit(b""))))
    return F.concat(id_, F.unhex(F.lpad(digest, 16, "0")))


def has_id(dialect: Dialect) -> Column:
    """Return whether a record, or a part of a transaction, has a duplicate ID."""
    return id_of(dialect).isNotNull()


def group_of(dialect: Dialect) -> Column:
    """Return the group; null = none. A missing or empty group header means the default group."""
    if not dialect.group_header:
        return F.col("key")
    named = header(dialect.group_header)
    return F.when(F.length(named) > 0, named).otherwise(F.lit(dialect.default_group.encode()))


def headers_digest() -> Column:
    """Return a digest of the user's headers in order, including repeats and nulls, without Ringfence's own.

    If there are few headers, the digest is taken without an array, so that Spark compiles it. The result is
    the same.
    """
    users = F.expr(f"filter(headers, header -> {_is_users('header')})")
    of_many = F.xxhash64(F.transform(users, lambda header: F.struct(*envelopes.hashed(header))))
    texts = []
    for number in range(HEADERS_FEW):
        one = F.get(F.col("headers"), F.lit(number))
        of_user = F.expr(_is_users(f"get(headers, {number})"))
        texts += [F.when(of_user, part) for part in envelopes.hashed(one)]
    few = F.coalesce(F.size("headers"), F.lit(0)) <= HEADERS_FEW
    return F.when(few, F.xxhash64(*texts)).otherwise(of_many)


def _is_users(header: str) -> str:
    """Return a condition that a header is the producer's, in SQL text: a list is a call for each item."""
    return f"{header}.key not in ({', '.join(map(repr, OURS))})"


def place_in(text: Column, topic: Column) -> Column:
    """Return the place in a header's text. The text is a column, so that the header is read once."""
    begins = F.concat(topic, F.lit("/"))
    rest = F.substr(text, F.length(begins) + 1)
    texts = (F.substring_index(rest, "/", 1), F.substring_index(rest, "/", -1))
    sound = F.startswith(text, begins) & (rest == F.concat_ws("/", *texts))
    partition, offset = texts[0].try_cast("int"), texts[1].try_cast("bigint")
    found = F.struct(partition.alias("partition"), offset.alias("offset"))
    return F.when(sound & partition.isNotNull() & offset.isNotNull(), found)


def power_of_two(number: Column) -> Column:
    """Return the smallest power of two not below the number, at least 1; by digits, as logs are inexact."""
    above = F.call_function("shiftleft", F.lit(1).cast("bigint"), F.length(F.bin(number - 1)))
    return F.when(number <= 1, F.lit(1).cast("bigint")).otherwise(above)
