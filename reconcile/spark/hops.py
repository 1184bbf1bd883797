"""Reads what bridges say of a record: which hop it is, what was confirmed, and whether its own ID counts.

Workers read the same headers with code of their own.
"""

from collections.abc import Collection
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.spark.envelopes import has, last
from ringfence_kafka.protocol import wire_names

MALFORMED: Final = ""
"""The source of a hop that cannot be read: what has one belongs into quarantine."""
OF_BRIDGES: Final = (wire_names.HEADER_HOP, wire_names.HEADER_CONFIRMED, wire_names.HEADER_USER_IDS)
"""Headers that end at the address that a bridge leads to."""
_OFFSET: Final = "(0|[1-9][0-9]{0,18})"
_HOP: Final = rf"\A[a-zA-Z0-9._-]{{1,200}}/[a-zA-Z0-9_-]{{22}}/(0|[1-9][0-9]{{0,9}})/{_OFFSET}\z"
_NUMBER: Final = rf"\A{_OFFSET}\z"
OFFSET_MAX: Final = 2**63 - 1
"""No record stands there: its successor has an offset too."""
_TEXTS: Final = 3
"""Of what stands in a hop, so many tell its source."""


def with_hops(records: DataFrame, chained: Collection[str] = ()) -> DataFrame:
    """The records, with ``hop_source``, ``hop_offset``, ``hop_confirmed``, ``ids_ignored`` and ``passed_digest``.

    Of what came over no bridge all are null, but ``ids_ignored``. Of a hop that cannot be read ``hop_source`` is
    :data:`MALFORMED`, and its own ID does not count.

    Args:
        records: Any.
        chained: Topics whose records keep what they have passed, though no bridge brought them there.
    """
    # Few records came over a bridge.
    over = is_bridged()
    traced = is_traced(chained)
    read = records.withColumn("ours", F.when(over | traced, _ours())).withColumn("hop", F.when(over, _hop()))
    there = F.col("hop").isNotNull()
    ignored = last("ours", wire_names.HEADER_USER_IDS).isNotNull() | (F.col("hop.source") == MALFORMED)
    return read.select(
        *records.columns,
        F.col("hop.source").alias("hop_source"),
        F.col("hop.offset").alias("hop_offset"),
        F.col("hop.confirmed").alias("hop_confirmed"),
        F.coalesce(there & ignored, F.lit(False)).alias("ids_ignored"),
        F.when(there, _digest(F.slice(_named(wire_names.HEADER_HOPS), -1, 1)))
        .when(traced, _digest(_named(wire_names.HEADER_HOPS)))
        .alias("passed_digest"),
    )


def is_traced(chained: Collection[str]) -> Column:
    """Whether a record of one of these topics has passed bridges before."""
    if not chained:
        return F.lit(False)
    return F.col("topic").isin(*chained) & has(wire_names.HEADER_HOPS)


def is_bridged() -> Column:
    """Whether a record came over a bridge."""
    return has(wire_names.HEADER_HOP)


def left_behind() -> Column:
    """Of an accepted record: a digest of the headers of bridges that it still has. Only the members that it passed may stand there."""
    kept = F.filter("headers", lambda each: each["key"].isin(wire_names.HEADER_HOPS, *OF_BRIDGES))
    names = F.array_join(F.col("headers")["key"], " ")
    perhaps = names.contains(wire_names.HEADER_HOPS)
    for each in OF_BRIDGES:
        perhaps |= names.contains(each)
    return F.when(perhaps, _digest(kept))


def _ours() -> Column:
    return F.filter("headers", lambda each: each["key"].startswith(wire_names.RESERVED_PREFIX))


def _has(headers: str, name: str) -> Column:
    return F.exists(headers, lambda each: each["key"] == name)


def _named(name: str) -> Column:
    return F.filter("ours", lambda each: each["key"] == name)


def _digest(headers: Column) -> Column:
    """Null = there are none. A digest skips nulls, so that it is told where they are."""
    told = F.transform(headers, lambda each: F.struct(each["key"], each["value"].isNull(), each["value"]))
    return F.when(F.size(headers) > 0, F.xxhash64(told))


def _hop() -> Column:
    """Source, offset, confirmed; where one cannot be read, the source says so."""
    text = last("ours", wire_names.HEADER_HOP).cast("string")
    partition = F.regexp_extract(text, _HOP, 1).try_cast("int")
    offset = F.regexp_extract(text, _HOP, 2).try_cast("bigint")
    confirmed = F.when(
        _has("ours", wire_names.HEADER_CONFIRMED),
        F.regexp_extract(last("ours", wire_names.HEADER_CONFIRMED).cast("string"), _NUMBER, 1).try_cast(
            "bigint"
        ),
    ).otherwise(F.lit(0))
    ids = F.when(
        _has("ours", wire_names.HEADER_USER_IDS),
        last("ours", wire_names.HEADER_USER_IDS) == F.lit(bytearray(wire_names.USER_IDS_IGNORED)),
    ).otherwise(F.lit(True))
    # A bridge confirms nothing beyond what it sends.
    sound = (
        partition.isNotNull() & (confirmed <= offset) & (offset < OFFSET_MAX) & F.coalesce(ids, F.lit(False))
    )
    source = F.substring_index(text, "/", _TEXTS)
    return F.when(
        F.coalesce(sound, F.lit(False)),
        F.struct(source.alias("source"), offset.alias("offset"), confirmed.alias("confirmed")),
    ).otherwise(
        F.struct(
            F.lit(MALFORMED).alias("source"),
            F.lit(None).cast("bigint").alias("offset"),
            F.lit(None).cast("bigint").alias("confirmed"),
        )
    )
