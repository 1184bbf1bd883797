"""Counts what envelopes hold: transactions, their parts, and the IDs of these. Bounded, whatever the data.

Whether an address may have parts for another is a matter of configuration, which an audit does not need: every address is allowed
here. IDs of parts are found as the address of the part finds them, where it is configured, else as the topic's records have theirs.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.audit.frames import kept
from reconcile.audit.result import Transactions
from reconcile.spark import envelopes, topic_reader
from reconcile.spark.topic_reader import Dialect
from ringfence_kafka.escaping import printable

ADDRESSES_SHOWN: Final = 20
_ADDRESSES: Final = "parts array<struct<address:string>>"


def counted(records: DataFrame, own: str, dialect: Dialect, others: Mapping[str, Dialect]) -> Transactions:
    """Of the records of one topic.

    Args:
        records: As Kafka's source has them.
        own: The name of the topic's address.
        dialect: How its records name their ID.
        others: The same of other addresses, by name.
    """
    marked = records.where(envelopes.is_envelope())
    rows = envelopes.opened(marked, F.lit(own), _addresses())
    told = rows.select(
        "partition", "offset", "parts", "part_number", "part_address",
        _has_id(own, dialect, others).alias("has_id"),
    )  # fmt: skip
    is_part = F.col("part_number") > 0
    by_envelope = told.groupBy("partition", "offset").agg(
        F.max("parts").alias("parts"),
        F.count_if(is_part & F.col("has_id")).alias("part_ids"),
        F.max("has_id").alias("has_id"),
    )
    with kept(told.where(is_part).groupBy("part_address").count()) as addresses:
        listed = addresses.orderBy(F.desc("count"), "part_address").limit(ADDRESSES_SHOWN).collect()
    sound = F.col("parts") > 0
    [row] = by_envelope.agg(
        F.count_if(sound).alias("count"),
        F.count_if(~sound).alias("malformed"),
        F.coalesce(F.sum("parts"), F.lit(0)).alias("parts"),
        F.coalesce(F.sum("part_ids"), F.lit(0)).alias("part_ids"),
        F.count_if(sound & ~F.col("has_id")).alias("without_id"),
        F.coalesce(F.max("parts"), F.lit(0)).alias("largest"),
    ).collect()
    names = ("count", "malformed", "parts", "part_ids", "without_id", "largest")
    return Transactions(
        **{name: row[name] for name in names},
        addresses={printable(row["part_address"]): row["count"] for row in listed},
    )


def _addresses() -> Column:
    """All that the parts of a record name."""
    parts = F.from_json(F.col("value").cast("string"), _ADDRESSES)["parts"]
    named = F.filter(F.transform(parts, lambda each: each["address"]), lambda each: each.isNotNull())
    return F.coalesce(named, F.array().cast("array<string>"))


def _has_id(own: str, dialect: Dialect, others: Mapping[str, Dialect]) -> Column:
    """Of a row: the envelope's own, or a part's."""
    found = F.when(F.col("part_number") == 0, topic_reader.has_id(dialect))
    for name, other in others.items():
        if name != own:
            found = found.when(F.col("part_address") == name, topic_reader.has_id(other))
    return found.otherwise(topic_reader.has_id(dialect))
