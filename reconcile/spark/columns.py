"""Columns of a record: ID, group, digest of headers, places in headers; constants, and columns of a schema."""

import base64
import itertools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from reconcile.spark import hops
from reconcile.spark.envelopes import hashed, header
from ringfence_kafka.config.settings import AddressDefaults
from ringfence_kafka.protocol import wire_names

HEADERS_FEW: Final = 4  # few records have more headers
OURS: Final = (
    wire_names.HEADER_SOURCE, wire_names.HEADER_KEY, wire_names.HEADER_ORIGINAL, wire_names.HEADER_REASON, wire_names.HEADER_TIMESTAMP, wire_names.HEADER_CONSUMER_GROUP,
    wire_names.HEADER_ATTEMPTS, wire_names.HEADER_REDRIVEN, wire_names.HEADER_TRANSACTION, wire_names.HEADER_PART, wire_names.HEADER_BRIDGE_APP, wire_names.HEADER_HOPS,
    wire_names.HEADER_SEQUENCE, wire_names.HEADER_VERDICT,
    *hops.OF_BRIDGES,
)  # fmt: skip
"""Headers that Ringfence writes, replaces or leaves out; all others must come out unchanged."""
_STRUCTURED: Final = "application/cloudevents+json"
_JSON: Final = {
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
    "maxNumLen": str(2**31 - 1),
    "maxStringLen": str(2**31 - 1),
}
_LONE: Final = (
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)
"""Half of a surrogate pair after an even number of backslashes: no UTF-8 form, so no ID."""
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_NESTED: Final = r"\A[\[{]"
_NESTED_TYPES: Final = (MapType(StringType(), StringType()), ArrayType(StringType()))


class Dialect(NamedTuple):
    """Settings by which addresses name ID and group. Topics with the same dialect share a scan."""

    id_headers: tuple[str, ...]
    id_from: str | tuple[str, ...]
    group_header: str
    default_group: str
    by_value: bool = False
    """Whether an ID with another value is another message."""

    @classmethod
    def of_address(cls, address: AddressDefaults) -> "Dialect":
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


def constant(values: Sequence[Any], kind: str) -> Column:
    """Return a constant list, or a list of lists. ``kind``: Spark's type name, such as ``array<bigint>``.

    Spark visits each item of ``array(…)`` again for each step added to a plan. A text is a single item, and
    the optimizer replaces it by its value.
    """
    return F.from_json(F.lit(json.dumps(values)), kind, {"mode": "FAILFAST"})


def value_of(values: Mapping[str, Any], kind: str, key: Column) -> Column:
    """Return the value of a key; null = it has none. ``kind``: Spark's name of the type of a value.

    Spark compiles this, and not a look into a map. A comparison for each key would travel with each task, key by key.
    """
    place = F.array_position(constant([*values], "array<string>"), key).cast("int") - 1
    return F.get(constant([*values.values()], f"array<{kind}>"), place)


def by_topic(values: Mapping[str, Any], kind: str) -> Column:
    """Return a value by the topic, which is a key of ``values``; ``kind``: Spark's name of a value's type."""
    if len(values) == 1:
        return F.get(constant([*values.values()], f"array<{kind}>"), F.lit(0))
    return value_of(values, kind, F.col("topic"))


def id_of(dialect: Dialect) -> Column:
    """Return HornetQ's ID in bytes, null = none. A digest stands for a value; an empty one is not an ID."""
    if not isinstance(dialect.id_from, str):
        return composed([part(form) for form in dialect.id_from])
    if dialect.id_from != "header":
        return part(dialect.id_from)
    return F.coalesce(*(F.when(F.length(header(name)) > 0, header(name)) for name in dialect.id_headers))


def with_value(id_: Column) -> Column:
    """Return an ID together with a digest of the record's value, where null counts as empty."""
    digest = F.hex(F.xxhash64(F.coalesce("value", F.lit(b""))))
    return F.concat(id_, F.unhex(F.lpad(digest, 16, "0")))


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
    of_many = F.xxhash64(F.transform(users, lambda header: F.struct(*hashed(header))))
    texts = []
    for number in range(HEADERS_FEW):
        one = F.get(F.col("headers"), F.lit(number))
        of_user = F.expr(_is_users(f"get(headers, {number})"))
        texts += [F.when(of_user, part) for part in hashed(one)]
    few = F.coalesce(F.size("headers"), F.lit(0)) <= HEADERS_FEW
    return F.when(few, F.xxhash64(*texts)).otherwise(of_many)


def has_no_value(digest: str) -> Column:
    """Return whether a column is the digest of an empty value or of null, which rings do not tell apart."""
    return F.col(digest).isin(F.xxhash64(F.lit(b"")), F.xxhash64(F.lit(None).cast("binary")))


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


def part(form: str) -> Column:
    """Return one part of an ID; null = missing or empty. A digest stands for a value."""
    if form == "key":
        return _filled(F.col("key"))
    if form == "value":
        return F.when(F.length("value") > 0, F.unhex(F.sha2("value", 256)))
    kind, _, name = form.partition(":")
    if kind == "value":
        return at_pointer(name)
    found = _filled(header(name))
    attribute = name.removeprefix("ce_")
    if attribute == name:
        return found
    content_type = F.lower(header("content-type").cast("string"))
    pointer = "/" + attribute.replace("~", "~0").replace("/", "~1")
    return F.coalesce(found, F.when(content_type.startswith(_STRUCTURED), at_pointer(pointer)))


def composed(parts: Sequence[Column]) -> Column:
    """Return one ID from several parts, each after its length in four bytes; null = a part is missing."""
    return F.concat(*(F.concat(F.unhex(F.lpad(F.hex(F.length(item)), 8, "0")), item) for item in parts))


def _filled(value: Column) -> Column:
    return F.when(F.length(value) > 0, value)


def at_pointer(pointer: str) -> Column:
    """Return the scalar at a JSON pointer (RFC 6901) as bytes; null = none, or invalid JSON."""
    _, *escaped = pointer.split("/")
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in escaped]
    found = _leaf(tokens, StringType())
    # Spark reads an object or a list as a string with its text.
    nested = F.greatest(*(_leaf(tokens, kind).isNotNull() for kind in _NESTED_TYPES))
    is_nested = F.when(found.rlike(_NESTED), nested).otherwise(False)
    return _filled(F.when(~is_nested, found).cast("binary"))


def _leaf(tokens: Sequence[str], kind: DataType) -> Column:
    """Return the value at the end of a pointer, if it can have this type.

    A number may be an index in a list, or a name.
    """
    readings = []
    text = F.col("value").cast("string")
    lone = F.lower(text).contains("\\ud") & text.rlike(_LONE)
    # Append one more element and check the size, because Spark accepts text after a JSON value.
    listed = F.when(F.is_valid_utf8(text) & ~lone, F.concat(F.lit("["), text, F.lit(",null]")))
    choices: list[list[str | int]] = [
        [token, int(token)] if _INDEX.fullmatch(token) else [token] for token in tokens
    ]
    for steps in itertools.product(*choices):
        schema = kind
        for step in reversed(steps):
            schema = ArrayType(schema) if isinstance(step, int) else StructType([StructField(step, schema)])
        read = F.from_json(listed, ArrayType(schema), _JSON)
        found = F.when(F.size(read) == 2, F.get(read, F.lit(0)))
        for step in steps:
            found = F.get(found, F.lit(step)) if isinstance(step, int) else found.getField(step)
        readings.append(found)
    return F.coalesce(*readings)


def small(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType) -> DataFrame:
    """Return a frame with a few rows of texts, numbers, flags and bytes.

    The rows travel as text within the plan. ``createDataFrame`` would start Python on the executors, which
    may not have it, and would take longer than the work on the rows.
    """
    text = json.dumps([dict(zip(schema.names, map(_json, row), strict=True)) for row in rows])
    parsed = F.from_json(F.lit(text), ArrayType(schema), {"mode": "FAILFAST"})
    return spark.range(1, numPartitions=1).select(F.inline(parsed))


def _json(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
