"""Reads the headers of bridges: the hop, the confirmed hops, and whether the record's own ID counts.

Workers read the same headers with other code.
"""

from collections.abc import Collection
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.spark.envelopes import has, hashed, header
from ringfence_kafka.protocol import wire_names

MALFORMED: Final = ""  # source of an unreadable hop, whose record belongs in quarantine
OF_BRIDGES: Final = (wire_names.HEADER_HOP, wire_names.HEADER_CONFIRMED, wire_names.HEADER_USER_IDS)
"""Headers that the target address of a bridge removes."""
_OFFSET: Final = "(0|[1-9][0-9]{0,18})"
_HOP: Final = rf"\A[a-zA-Z0-9._-]{{1,200}}/[a-zA-Z0-9_-]{{22}}/(0|[1-9][0-9]{{0,9}})/{_OFFSET}\z"
_NUMBER: Final = rf"\A{_OFFSET}\z"
OFFSET_MAX: Final = 2**63 - 1  # not used by a record, since its successor has an offset too
_TEXTS: Final = 3  # number of leading texts of a hop that name its source


def with_hops(records: DataFrame, chained: Collection[str] = ()) -> DataFrame:
    """Add ``hop_source``, ``hop_offset``, ``hop_confirmed``, ``ids_ignored`` and ``passed_digest``.

    Records that did not come over a bridge have null, and False. An unreadable hop has the source
    :data:`MALFORMED`, and the record's own ID does not count. ``chained``: topics whose records keep the
    trace of earlier bridges.
    """
    # few records come over bridges
    over = is_bridged()
    traced = is_traced(chained)
    ours = F.filter("headers", lambda header: header["key"].startswith(wire_names.RESERVED_PREFIX))
    read = records.withColumn("ours", F.when(over | traced, ours)).withColumn("hop", F.when(over, _hop()))
    there = F.col("hop").isNotNull()
    ignored = header(wire_names.HEADER_USER_IDS, "ours").isNotNull() | (F.col("hop.source") == MALFORMED)
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
    """Return whether a record of a chained topic passed bridges before."""
    if not chained:
        return F.lit(False)
    return F.col("topic").isin(*chained) & has(wire_names.HEADER_HOPS)


def is_bridged() -> Column:
    """Return whether a record came over a bridge."""
    return has(wire_names.HEADER_HOP)


def left_behind() -> Column:
    """Return a digest of bridge headers in an accepted record. Only the trace of members may remain."""
    kept = F.filter("headers", lambda header: header["key"].isin(wire_names.HEADER_HOPS, *OF_BRIDGES))
    names = F.array_join(F.col("headers")["key"], " ")
    perhaps = names.contains(wire_names.HEADER_HOPS)
    for name in OF_BRIDGES:
        perhaps |= names.contains(name)
    return F.when(perhaps, _digest(kept))


def _named(name: str) -> Column:
    return F.filter("ours", lambda header: header["key"] == name)


def _digest(headers: Column) -> Column:
    """Return a digest of headers; null = no headers."""
    texts = F.transform(headers, lambda header: F.struct(*hashed(header)))
    return F.when(F.size(headers) > 0, F.xxhash64(texts))


def _hop() -> Column:
    """Return source, offset and confirmed offset; the source is :data:`MALFORMED` if one is unreadable."""
    text = header(wire_names.HEADER_HOP, "ours").cast("string")
    partition = F.regexp_extract(text, _HOP, 1).try_cast("int")
    offset = F.regexp_extract(text, _HOP, 2).try_cast("bigint")
    confirmed = F.when(
        has(wire_names.HEADER_CONFIRMED, "ours"),
        F.regexp_extract(header(wire_names.HEADER_CONFIRMED, "ours").cast("string"), _NUMBER, 1).try_cast(
            "bigint"
        ),
    ).otherwise(0)
    ids = F.when(
        has(wire_names.HEADER_USER_IDS, "ours"),
        header(wire_names.HEADER_USER_IDS, "ours") == F.lit(bytearray(wire_names.USER_IDS_IGNORED)),
    ).otherwise(True)
    # a bridge does not confirm anything beyond the hop that it sends
    sound = (
        partition.isNotNull() & (confirmed <= offset) & (offset < OFFSET_MAX) & F.coalesce(ids, F.lit(False))
    )
    source, nothing = F.substring_index(text, "/", _TEXTS), F.lit(None).cast("bigint")
    return F.when(
        F.coalesce(sound, F.lit(False)),
        F.struct(source.alias("source"), offset.alias("offset"), confirmed.alias("confirmed")),
    ).otherwise(
        F.struct(F.lit(MALFORMED).alias("source"), nothing.alias("offset"), nothing.alias("confirmed"))
    )
