"""Counts transactions with parts and IDs, and records that came over bridges. The results are bounded.

Every address may receive parts here. IDs of parts follow the settings of their address if it is configured,
else those of the topic.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.audit.frames import kept
from reconcile.audit.result import Bridges, Transactions
from reconcile.spark import columns, envelopes
from reconcile.spark.columns import Dialect
from reconcile.spark.hops import MALFORMED
from ringfence_kafka.escaping import printable

BRIDGES_SHOWN: Final = 20
ADDRESSES_SHOWN: Final = 20
_ADDRESSES: Final = "parts array<struct<address:string>>"


def count_bridges(records: DataFrame) -> Bridges:
    """Count hops of :data:`reconcile.spark.schemas.AUDITED`.

    A hop that occurs several times was sent again. Confirmations do not count, because an audit may begin in
    the middle of a topic.
    """
    came = records.where("hop_source is not null")
    sound = F.col("hop_source") > MALFORMED
    hops = came.where(sound).groupBy("hop_source", "hop_offset").agg(F.count(F.lit(1)).alias("times"))
    by_bridge = hops.groupBy(F.substring_index("hop_source", "/", 1).alias("bridge")).agg(
        F.sum("times").alias("records"), F.sum(F.col("times") - 1).alias("resends")
    )
    [row] = came.agg(
        F.count_if(sound).alias("records"),
        F.count_if(~sound).alias("malformed"),
        F.count_if(sound & F.col("ids_ignored")).alias("ids_ignored"),
    ).collect()
    with kept(by_bridge) as bridges:
        listed = bridges.orderBy(F.desc("records"), "bridge").limit(BRIDGES_SHOWN).collect()
        resends = bridges.agg(F.coalesce(F.sum("resends"), F.lit(0)).alias("resends")).collect()[0]["resends"]
    return Bridges(**row.asDict(), resends=resends, bridges={row["bridge"]: row["records"] for row in listed})


def count_transactions(
    records: DataFrame, own: str, dialect: Dialect, others: Mapping[str, Dialect]
) -> Transactions:
    """Count transactions of a topic. ``own``: its address; ``others``: name → settings of others."""
    marked = records.where(envelopes.is_envelope())
    rows = envelopes.opened(marked, F.lit(own), _addresses())
    opened = rows.select(
        "partition", "offset", "parts", "part_number", "part_address",
        _has_id(own, dialect, others).alias("has_id"),
    )  # fmt: skip
    is_part = F.col("part_number") > 0
    by_envelope = opened.groupBy("partition", "offset").agg(
        F.max("parts").alias("parts"),
        F.count_if(is_part & F.col("has_id")).alias("part_ids"),
        F.max("has_id").alias("has_id"),
    )
    with kept(opened.where(is_part).groupBy("part_address").count()) as addresses:
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
    parts = F.from_json(F.col("value").cast("string"), _ADDRESSES)["parts"]
    named = F.filter(F.transform(parts, lambda part: part["address"]), lambda address: address.isNotNull())
    return F.coalesce(named, F.array().cast("array<string>"))


def _has_id(own: str, dialect: Dialect, others: Mapping[str, Dialect]) -> Column:
    found = F.when(F.col("part_number") == 0, columns.has_id(dialect))
    for name, other in others.items():
        if name != own:
            found = found.when(F.col("part_address") == name, columns.has_id(other))
    return found.otherwise(columns.has_id(dialect))
