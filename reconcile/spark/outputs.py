"""Brings what came out into columns: the input record, or the part of one, that each output names, and digests of what it holds."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.spark.envelopes import has
from reconcile.spark.hops import left_behind
from reconcile.spark.schemas import ACCEPTED, DIVERTED, OUTPUTS, QUARANTINED
from reconcile.spark.topic_reader import (
    Dialect,
    address_of,
    group_of,
    header,
    headers_digest,
    id_of,
    place_in,
    topic_of,
)
from ringfence_kafka.protocol import wire_names

_CREATE_TIME: Final = 0
"""Timestamps are the producer's, not the broker's."""


class Source(NamedTuple):
    """Of what an accepted topic holds: whose inputs it may come from, besides those of its own address."""

    number: int
    topic: str


def accepted(
    records: DataFrame,
    input_topics: Mapping[str, str],
    numbers: Mapping[str, int],
    sources: Mapping[str, Sequence[Source]],
) -> DataFrame:
    """:data:`reconcile.spark.schemas.OUTPUTS`, of accepted topics: the input's key is in a header where it is not the group.

    A part may come from an input of another address; ``sources``: topic → those.
    """
    return _outputs(records, input_topics, numbers, ACCEPTED, _input_key(), sources)


def diverted(records: DataFrame, input_topics: Mapping[str, str], numbers: Mapping[str, int]) -> DataFrame:
    """:data:`reconcile.spark.schemas.OUTPUTS`, of duplicates topics."""
    return _outputs(records, input_topics, numbers, DIVERTED, F.col("key"), {})


def quarantined(records: DataFrame, input_topics: Mapping[str, str], numbers: Mapping[str, int]) -> DataFrame:
    """:data:`reconcile.spark.schemas.OUTPUTS`, of quarantine topics."""
    return _outputs(records, input_topics, numbers, QUARANTINED, F.col("key"), {})


def named(records: DataFrame, dialect: Dialect, fate: int) -> DataFrame:
    """ID and group of outputs: ``out_partition``, ``out_offset``, ``out_id``, ``out_group``. For few records."""
    accepted_one = fate == ACCEPTED
    whose = F.col("key") if accepted_one else group_of(dialect)
    told = records.select(
        F.col("partition").alias("out_partition"), F.col("offset").alias("out_offset"), whose.alias("out_group"), "value", "headers",
        (_input_key() if accepted_one else F.col("key")).alias("key"),
    )  # fmt: skip
    return told.withColumn("out_id", id_of(dialect)).select(
        "out_partition", "out_offset", "out_id", "out_group"
    )


def _input_key() -> Column:
    """Of what an accepted record comes from: in a header where it is not the group."""
    return F.when(has(wire_names.HEADER_KEY), header(wire_names.HEADER_KEY)).otherwise(F.col("key"))


def _outputs(
    records: DataFrame,
    input_topics: Mapping[str, str],
    numbers: Mapping[str, int],
    fate: int,
    key: Column,
    sources: Mapping[str, Sequence[Source]],
) -> DataFrame:
    nothing = F.lit(None)
    # What is refused, or ignored, is so whole: whatever headers it had, it speaks for all parts.
    part, named = nothing.cast("string"), nothing.cast("string")
    stand_in, passed = nothing.cast("bigint"), nothing.cast("bigint")
    if fate == ACCEPTED:
        part = header(wire_names.HEADER_PART).cast("string")
        passed = left_behind()
    if fate == DIVERTED:
        named = header(wire_names.HEADER_ORIGINAL).cast("string")
    if fate == QUARANTINED:
        stand_in = F.get_json_object(F.col("value").cast("string"), "$.bytes").try_cast("bigint")
    # At once: what follows would copy all that a record holds, and look for a header as often as it is looked at.
    said = records.select(
        "topic",
        F.when(F.col("timestampType") == _CREATE_TIME, F.unix_millis("timestamp")).alias("out_timestamp"),
        F.col("partition").alias("out_partition"),
        F.col("offset").alias("out_offset"),
        F.xxhash64("key").alias("out_group_digest"),
        F.xxhash64(key).alias("out_key_digest"),
        F.xxhash64("value").alias("out_value_digest"),
        stand_in.alias("out_value_bytes"),
        headers_digest().alias("out_headers_digest"),
        passed.alias("out_passed_digest"),
        header(wire_names.HEADER_SOURCE).cast("string").alias("source_text"),
        named.alias("original"),
        part.alias("part_text"),
    )
    columns = said.withColumns(
        {
            "source": place_in(F.col("source_text"), topic_of(input_topics)),
            "named": place_in(F.col("original"), topic_of(input_topics)),
            "of": _part(F.col("part_text")),
        }
    )
    elsewhere = [(topic, item) for topic, several in sources.items() for item in several]
    address = address_of(numbers)
    if elsewhere:
        away = F.when(F.col("source").isNull(), _elsewhere(elsewhere))
        columns = columns.withColumn("away", away)
        columns = columns.withColumn("source", F.coalesce("source", "away.place"))
        address = F.coalesce("away.address", address)
    own: dict[str, Column] = {
        "address": address,
        "partition": F.col("source.partition"),
        "offset": F.col("source.offset"),
        "part_number": F.coalesce("of.number", F.lit(0)),
        "fate": F.lit(fate),
        "out_address": address_of(numbers),
        "out_parts": F.col("of.parts"),
        "original_partition": F.col("named.partition"),
        "original_offset": F.col("named.offset"),
    }
    return columns.select(*(own.get(name, F.col(name)).alias(name) for name in OUTPUTS.names))


def _part(text: Column) -> Column:
    """Which part of how many an output says that it is; null = none."""
    split = F.split(text, "/")
    number, parts = (F.try_element_at(split, F.lit(number)).try_cast("int") for number in (1, 2))
    sound = (F.size(split) == 2) & (number > 0) & (parts > 0)
    return F.when(sound, F.struct(number.alias("number"), parts.alias("parts")))


def _elsewhere(several: Sequence[tuple[str, Source]]) -> Column:
    """Address and place of the input that a part comes from, where it is one of another address."""
    rows = []
    for topic, item in several:
        named = place_in(F.col("source_text"), F.lit(item.topic))
        here = (F.col("topic") == topic) & F.col("of").isNotNull() & named.isNotNull()
        rows.append(F.when(here, F.struct(F.lit(item.number).alias("address"), named.alias("place"))))
    return F.coalesce(*rows)
