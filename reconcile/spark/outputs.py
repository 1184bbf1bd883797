"""Columns of outputs: the input or part that each output names, and digests of its content."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.spark import columns
from reconcile.spark.envelopes import has, header
from reconcile.spark.hops import left_behind
from reconcile.spark.schemas import ACCEPTED, DIVERTED, OBSERVED, OUTPUTS, PASSED, QUARANTINED
from ringfence_kafka.protocol import wire_names

_CREATE_TIME: Final = 0  # the producer has set the timestamp, not the broker
_DUPLICATE: Final = "DUPLICATE"  # begins the verdict on an observed duplicate; its original follows


def named(records: DataFrame, dialect: columns.Dialect, fate: int, numbers: Mapping[str, int]) -> DataFrame:
    """Return ``out_address``, ``out_partition``, ``out_offset``, ``out_id`` and ``out_group`` of outputs. For few records.

    Args:
        records: Records of these topics.
        dialect: Dialect of all their addresses.
        fate: Fate of all records.
        numbers: Topic → number of its address.
    """
    if passed := fate in PASSED:
        records = records.withColumns({"group": F.col("key"), "key": _input_key()})
    return records.select(
        columns.by_topic(numbers, "int").alias("out_address"),
        F.col("partition").alias("out_partition"),
        F.col("offset").alias("out_offset"),
        columns.id_of(dialect).alias("out_id"),
        (F.col("group") if passed else columns.group_of(dialect)).alias("out_group"),
    )


def _input_key() -> Column:
    """Return the key of an accepted record's input: from its header if the record has the group as key."""
    return F.when(has(wire_names.HEADER_KEY), header(wire_names.HEADER_KEY)).otherwise(F.col("key"))


def outputs(
    records: DataFrame,
    fate: int,
    input_topics: Mapping[str, str],
    numbers: Mapping[str, int],
    sources: Mapping[str, Mapping[str, int]],
) -> DataFrame:
    """Return :data:`reconcile.spark.schemas.OUTPUTS` of all topics with one fate.

    Args:
        records: Records of these topics.
        fate: Fate of the topics. With :data:`reconcile.spark.schemas.ACCEPTED`, some may be observed
            duplicates.
        input_topics: Topic → input topic of its address.
        numbers: Topic → number of its address.
        sources: Accepted topic → input of another address → number of that address.
    """
    # An envelope is refused or ignored as a whole, so its output has no part number.
    part = named = verdict = F.lit(None).cast("string")
    placeholder = passed = sequence = F.lit(None).cast("bigint")
    key = F.col("key")
    if fate == ACCEPTED:
        verdict = header(wire_names.HEADER_VERDICT).cast("string")
        part, key = header(wire_names.HEADER_PART).cast("string"), _input_key()
        passed = left_behind()
        sequence = header(wire_names.HEADER_SEQUENCE).cast("string").try_cast("bigint")
    if fate == DIVERTED:
        named = header(wire_names.HEADER_ORIGINAL).cast("string")
    if fate == QUARANTINED:
        placeholder = F.get_json_object(F.col("value").cast("string"), "$.bytes").try_cast("bigint")
    # Select in one step: later steps would copy the whole record, and search a header again at each use.
    said = records.select(
        "topic",
        F.when(F.col("timestampType") == _CREATE_TIME, F.unix_millis("timestamp")).alias("out_timestamp"),
        F.col("partition").alias("out_partition"),
        F.col("offset").alias("out_offset"),
        F.xxhash64("key").alias("out_group_digest"),
        F.xxhash64(key).alias("out_key_digest"),
        F.xxhash64("value").alias("out_value_digest"),
        placeholder.alias("out_value_bytes"),
        columns.headers_digest().alias("out_headers_digest"),
        passed.alias("out_passed_digest"),
        header(wire_names.HEADER_SOURCE).cast("string").alias("source_text"),
        named.alias("original"),
        part.alias("part_text"),
        sequence.alias("sequence"),
        verdict.alias("verdict"),
    )
    own_fate = F.lit(fate)
    if fate == ACCEPTED:
        observed = F.coalesce(F.startswith("verdict", F.lit(_DUPLICATE)), F.lit(False))
        original = F.regexp_extract("verdict", rf"\A{_DUPLICATE} (.+)\z", 1)
        said = said.withColumn("original", F.when(observed, F.nullif(original, F.lit(""))))
        own_fate = F.when(observed, OBSERVED).otherwise(ACCEPTED)
    placed = said.withColumns(
        {
            "source": columns.place_in(F.col("source_text"), columns.by_topic(input_topics, "string")),
            "named": columns.place_in(F.col("original"), columns.by_topic(input_topics, "string")),
            "of": _part(F.col("part_text")),
        }
    )
    address = columns.by_topic(numbers, "int")
    if any(sources.values()):
        away = F.when(F.col("source").isNull(), _elsewhere(sources, "source_text"))
        named_away = F.coalesce("named", _elsewhere(sources, "original")["place"])
        placed = placed.withColumns({"away": away, "named": named_away})
        placed = placed.withColumn("source", F.coalesce("source", "away.place"))
        address = F.coalesce("away.address", address)
    own: dict[str, Column] = {
        "address": address,
        "partition": F.col("source.partition"),
        "offset": F.col("source.offset"),
        "part_number": F.coalesce("of.number", F.lit(0)),
        "fate": own_fate,
        "out_address": columns.by_topic(numbers, "int"),
        "out_parts": F.col("of.parts"),
        "original_partition": F.col("named.partition"),
        "original_offset": F.col("named.offset"),
        "marked": F.col("verdict").isNotNull(),
    }
    return placed.select(*(own.get(name, F.col(name)).alias(name) for name in OUTPUTS.names))


def _part(text: Column) -> Column:
    """Return number and count of a part; null = not a part."""
    split = F.split(text, "/")
    number, parts = (F.try_element_at(split, F.lit(number)).try_cast("int") for number in (1, 2))
    sound = (F.size(split) == 2) & (number > 0) & (parts > 0)
    return F.when(sound, F.struct(number.alias("number"), parts.alias("parts")))


def _elsewhere(sources: Mapping[str, Mapping[str, int]], text: str) -> Column:
    """Return address and place of another address's input, from the text of a part."""
    inputs = {topic: [*several] for topic, several in sources.items()}
    addresses = {topic: [*several.values()] for topic, several in sources.items()}
    topic = F.substring_index(F.col(text), "/", 1)
    at = F.array_position(columns.by_topic(inputs, "array<string>"), topic).cast("int") - 1
    address = F.get(columns.by_topic(addresses, "array<int>"), at)
    place = columns.place_in(F.col(text), topic)
    here = F.col("of").isNotNull() & address.isNotNull() & place.isNotNull()
    return F.when(here, F.struct(address.alias("address"), place.alias("place")))
