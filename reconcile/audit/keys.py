"""Counts records by partition, key, group and header. The size of the result is bounded."""

from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reconcile.audit.frames import kept
from reconcile.audit.partitioner import Placed, explained
from reconcile.audit.result import Audit, Groups, HeaderSeen, PartitionCount, Resends
from reconcile.page.formatting import as_text
from reconcile.page.report_data import DAY_MS, GROUPS_MAX, GroupBin, LargeGroup
from reconcile.spark.columns import power_of_two
from ringfence_kafka.escaping import printable

NEARLY_ALL: Final = 0.05  # share of records left out at each end of the usual times
FAR_MS: Final = 366 * DAY_MS
"""Distance from the usual times beyond which a timestamp is wrong, in milliseconds. Seconds sent as
milliseconds lie in January 1970. A clock without a battery shows a fixed year.
"""
KEYS_SAMPLED: Final = 10_000
KEY_BYTES_MAX: Final = 4_096  # the driver hashes sampled keys, so longer ones are left out
NAME_BYTES_MAX: Final = 512
HEADERS_SHOWN: Final = 20


def by_partition(audit: Audit, records: DataFrame) -> Audit:
    """Count records by partition, and find the first and last time."""
    dated = F.when(F.col("timestamp") > 0, F.col("timestamp"))
    rows = records.groupBy("partition").agg(
        F.count(F.lit(1)).alias("records"), F.count("id").alias("with_id"), F.count_if("keyed").alias("keyed"),
        F.count_if("tombstone").alias("tombstones"), F.count_if("envelope").alias("envelopes"), F.count("hop_source").alias("bridged"),
        F.min(dated).alias("first"), F.max(dated).alias("last"),
    ).collect()  # fmt: skip
    names = ("records", "with_id", "keyed", "tombstones", "envelopes", "bridged")
    there = {row["partition"]: {name: row[name] for name in names} for row in rows}
    first_ms = min((row["first"] for row in rows if row["first"]), default=0)
    last_ms = max((row["last"] for row in rows if row["last"]), default=0)
    far_off = 0
    if last_ms - first_ms > FAR_MS:
        first_ms, last_ms, far_off = _usual(records.where("timestamp > 0").select("timestamp"))
    return replace(
        audit,
        partitions=[
            PartitionCount(number, **there.get(number, {})) for number in sorted(audit.topic.extents)
        ],
        first_ms=first_ms,
        last_ms=last_ms,
        far_off=far_off,
        found=Resends(audit.settings.duplicate_id_from),
    )


def _usual(timestamps: DataFrame) -> tuple[int, int, int]:
    """Return first and last time of the usual records, and the number of records far from them."""
    at = F.col("timestamp")
    [low, high] = timestamps.agg(F.percentile_approx(at, [NEARLY_ALL, 1 - NEARLY_ALL])).collect()[0][0]
    usual = at.between(low - FAR_MS, high + FAR_MS)
    near = F.when(usual, at)
    [row] = timestamps.agg(F.min(near), F.max(near), F.count_if(~usual)).collect()
    return row[0], row[1], row[2]


def by_key(audit: Audit, records: DataFrame) -> Audit:
    """Compute which share of the keys' partitions each partitioner explains."""
    if audit.topic.partitions == 1 or not audit.sum("keyed"):
        return audit
    key = F.col("key" if audit.settings.group_header else "group").alias("key")
    short = records.where("keyed").select(key, "partition").where(F.length("key") <= KEY_BYTES_MAX)
    placed = short.groupBy("key", "partition").count()
    # Order by a hash: every run takes the same sample, spread over all keys.
    rows = placed.orderBy(F.xxhash64("key"), "key", "partition").limit(KEYS_SAMPLED).collect()
    sample = [Placed(bytes(row["key"]), row["partition"], row["count"]) for row in rows]
    return replace(
        audit,
        sampled_keys=len({item.key for item in sample}),
        partitioners=explained(sample, audit.topic.partitions) or None,
    )


def groups(records: DataFrame) -> Groups:
    """Return the number of groups of each size, and the largest groups."""
    grouped = records.where("`group` is not null").groupBy("group").count()
    with kept(grouped) as sizes:
        bins = (
            sizes.groupBy(power_of_two(F.col("count")).alias("upper"))
            .agg(F.count(F.lit(1)).alias("groups"), F.sum("count").alias("records"))
            .orderBy("upper")
            .collect()
        )
        name = F.substring("group", 1, NAME_BYTES_MAX).alias("group")
        largest = sizes.orderBy(F.desc("count"), "group").limit(GROUPS_MAX).select(name, "count").collect()
    return Groups(
        sum(row["groups"] for row in bins),
        sum(row["records"] for row in bins),
        [LargeGroup(as_text(bytes(row["group"])), row["count"]) for row in largest],
        [GroupBin(row["upper"], row["groups"], row["records"]) for row in bins],
    )


def headers(rows: DataFrame) -> list[HeaderSeen]:
    """Return names of headers with the number of distinct values. ``rows``: name and value, from a sample."""
    counted = rows.groupBy("name").agg(
        F.count(F.lit(1)).alias("records"), F.approx_count_distinct("value").alias("values")
    )
    found = counted.orderBy(F.desc("records"), "name").limit(HEADERS_SHOWN).collect()
    return [
        HeaderSeen(printable(row["name"]), row["records"], min(row["records"], row["values"]))
        for row in found
    ]
