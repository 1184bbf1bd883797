"""Opens envelopes: a record with parts of a transaction becomes a row for itself and a row for each part.

Workers read the same grammar with other code, and both find the same bytes in accepted envelopes. A refused
envelope is in quarantine as a whole. Therefore this code ignores repeated and unknown names, and only checks
whether an envelope can be expanded.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ringfence_kafka.protocol import wire_names

PARTS_MAX: Final = 10_000  # limit of parts; an envelope with more is refused
HEADERS: Final = "array<struct<key:string,value:binary>>"  # type of headers in Kafka's source
_BASE64: Final = r"\A[A-Za-z0-9+/]*={0,2}\z"
_BASE64_UNIT: Final = 4
_WRITTEN: Final = "array<struct<name:string,value:string,value_base64:string>>"
_ENVELOPE: Final = f"parts array<struct<address:string,key:string,key_base64:string,value:string,value_base64:string,headers:{_WRITTEN}>>"
_PART: Final = f"struct<address:string,key:binary,value:binary,headers:{HEADERS}>"
_LENIENT: Final = {"maxStringLen": str(2**31 - 1)}
"""Without this option Spark limits strings to 20 million characters; a topic may have larger records."""
_OPENED: Final = ["part_number", "parts", "part_address"]


def opened(records: DataFrame, own: Column, others: Column) -> DataFrame:
    """Return the records, each envelope followed by its parts, in rows of the same columns.

    A part has its own ``key``, ``value`` and ``headers``; all other columns are the envelope's. Three columns
    are new. ``part_number`` counts from 1, and 0 is the record itself. ``parts`` is the number of parts, 0 =
    unreadable, null = not an envelope. ``part_address`` is the target of a part, null for the record itself.

    Args:
        records: Frame with key, value, headers, and more.
        own: Name of the record's address.
        others: Array of the names of other possible targets.
    """
    marked = records.withColumn("marked", is_envelope())
    read = marked.withColumn("read", F.when(F.col("marked"), _read(own)))
    sound = F.when(F.col("marked"), _sound(own, others))
    counted = read.withColumns(
        {
            "decoded": F.when(sound, F.transform("read", _decoded)),
            "parts": F.when(F.col("marked"), F.when(sound, F.size("read")).otherwise(0)),
        }
    )
    nothing = F.lit(None).cast(_PART)
    rows = F.when(F.col("parts") > 0, F.concat(F.array(nothing), F.col("decoded"))).otherwise(
        F.array(nothing)
    )
    exploded = counted.select(*records.columns, "parts", F.posexplode(rows).alias("part_number", "part"))
    itself = F.col("part_number") == 0
    own_columns = {
        name: F.when(itself, F.col(name)).otherwise(F.col("part")[name])
        for name in ("key", "value", "headers")
    }
    return exploded.withColumns({**own_columns, "part_address": F.col("part")["address"]}).select(
        *records.columns, *_OPENED
    )


def is_envelope() -> Column:
    """Return whether a record's value lists the parts of a transaction."""
    return has(wire_names.HEADER_TRANSACTION)


def has(name: str, headers: str = "headers") -> Column:
    """Return whether a record has a header of that name."""
    return F.coalesce(F.array_contains(F.col(headers)["key"], name), F.lit(False))


def header(name: str, headers: str = "headers") -> Column:
    """Return a header's value, the last one if it is repeated, as in Kafka. Null = missing or null."""
    # Spark compiles these array functions, but not those that take a lambda. If the position is 0, the index
    # is past the end: null.
    names = F.col(headers)["key"]
    from_behind = F.array_position(F.reverse(names), F.lit(name)).cast("int")
    return F.get(F.col(headers)["value"], F.size(names) - from_behind)


def hashed(header: Column) -> tuple[Column, ...]:
    """Return columns of a header for a digest. Digests skip nulls, so a flag marks a null value."""
    return header["key"], header["value"].isNull(), header["value"]


def _read(own: Column) -> Column:
    """Return the parts, each with its target; null = unreadable."""
    known = header(wire_names.HEADER_TRANSACTION) == F.lit(bytearray(wire_names.TRANSACTION_FORM))
    listed = F.from_json(F.col("value").cast("string"), _ENVELOPE, _LENIENT)["parts"]
    return F.when(
        known, F.transform(listed, lambda part: part.withField("address", F.coalesce(part["address"], own)))
    )


def _sound(own: Column, others: Column) -> Column:
    """Return whether the number of parts is allowed, and a lane could accept each part."""
    allowed = F.concat(F.array(own), others)
    count = F.size("read")
    return F.coalesce(
        count.between(1, PARTS_MAX) & F.forall("read", lambda part: _whole(part) & F.array_contains(allowed, part["address"])),
        F.lit(False),
    )  # fmt: skip


def _whole(part: Column) -> Column:
    headers = F.coalesce(part["headers"], F.array().cast(_WRITTEN))
    return (
        part.isNotNull()
        & _spelt(part, "key")
        & _spelt(part, "value")
        & F.forall(
            headers,
            lambda header: _spelt(header, "value") & ~header["name"].startswith(wire_names.RESERVED_PREFIX),
        )
    )


def _spelt(holder: Column, name: str) -> Column:
    """Return whether a value has at most one spelling and can be decoded."""
    encoded = holder[f"{name}_base64"]
    return encoded.isNull() | (holder[name].isNull() & _decoded_base64(encoded).isNotNull())


def _decoded(part: Column) -> Column:
    headers = F.transform(
        part["headers"],
        lambda header: F.struct(header["name"].alias("key"), _bytes(header, "value").alias("value")),
    )
    return F.struct(
        part["address"].alias("address"),
        _bytes(part, "key").alias("key"),
        _bytes(part, "value").alias("value"),
        F.coalesce(headers, F.array().cast(HEADERS)).alias("headers"),
    )


def _bytes(holder: Column, name: str) -> Column:
    """Return the bytes of either spelling; null = neither exists."""
    return F.coalesce(holder[name].cast("binary"), _decoded_base64(holder[f"{name}_base64"]))


def _decoded_base64(text: Column) -> Column:
    """Return the decoded text; null = not Base64."""
    # Spark itself would accept missing padding and white space.
    written = text.rlike(_BASE64) & (F.length(text) % _BASE64_UNIT == 0)
    return F.when(written, F.try_to_binary(text, F.lit("base64")))
