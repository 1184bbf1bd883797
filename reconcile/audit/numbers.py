"""Steps of an audit in order, and the frames that they share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from reconcile.audit import frames, keys, resend_counts
from reconcile.audit.frames import kept
from reconcile.audit.result import Audit, Bridges, Resends, Transactions
from reconcile.page.report_data import Moment
from reconcile.spark import columns, envelopes, topic_reader
from reconcile.spark.columns import Dialect
from reconcile.spark.hops import MALFORMED
from ringfence_kafka.config.settings import AddressDefaults
from ringfence_kafka.escaping import printable
from ringfence_kafka.process.step_progress import Progress
from ringfence_kafka.wording import counted

STEPS: Final = (
    "reading",
    "looking at keys and groups",
    "looking for resends",
    "measuring distances",
    "measuring other IDs",
)
HEADERS_SAMPLED: Final = 10_000
BRIDGES_SHOWN: Final = 20
ADDRESSES_SHOWN: Final = 20
_ADDRESSES: Final = "parts array<struct<address:string>>"


@dataclass(slots=True)
class Counter:
    """Counts the records of one topic."""

    spark: SparkSession
    options: Mapping[str, str]  # options of Spark's Kafka source
    progress: Progress
    others: Mapping[str, Dialect] = field(default_factory=dict)
    """Name → ID and group settings of other configured addresses, which transactions may have parts for."""

    def counted(self, asked: Audit, *, look_further: bool) -> Audit:
        """Count everything. With ``look_further``, try keys and values as IDs if no record has an ID."""
        ranges = {asked.topic.name: asked.topic.part.ranges()}
        if not ranges[asked.topic.name]:
            return asked
        own = dialect(asked.settings)
        self.progress.start_step(STEPS[0])
        with kept(topic_reader.audited(topic_reader.scan(self.spark, self.options, ranges), own)) as records:
            audit = keys.by_partition(asked, records)
            self.progress.count(f"{counted(audit.records, 'message')} of {asked.topic.name}")
            if not audit.records:
                return audit
            self.progress.start_step(STEPS[1])
            audit = keys.by_key(audit, records)
            audit = replace(audit, groups=keys.groups(records))
            self.progress.count(counted(audit.sum("keyed"), "message with a key", "messages with a key"))
            self.progress.start_step(STEPS[2])
            audit = self._resends(audit, records)
            if audit.sum("bridged"):
                audit = replace(audit, bridges=count_bridges(records))
        if audit.sum("envelopes"):
            scanned = topic_reader.scan(self.spark, self.options, ranges)
            name = audit.configured or audit.topic.name
            audit = replace(audit, transactions=count_transactions(scanned, name, own, self.others))
        without_ids = look_further and not audit.found.with_id
        if without_ids or not audit.sum("keyed"):
            self.progress.start_step(STEPS[4])
            audit = self._headers(audit)
        if without_ids:
            others = [self._instead(audit, own, name) for name in ("key", "value")]
            audit = replace(audit, others=others)
        return audit

    def _resends(self, audit: Audit, records: DataFrame) -> Audit:
        with kept(_arrived(audit, records, audit.sum("with_id"))) as arrived:
            count = audit.layout.lanes
            lanes, parts, moments = resend_counts.tallied(arrived, count, audit.first_ms, audit.last_ms)
            resends = {row["place"]: row["resends"] for row in parts}
            self.progress.count(counted(sum(resends.values()), "resend"))
            self.progress.start_step(STEPS[3])
            placed = resend_counts.in_lanes(audit.found, lanes, count)
            found = self._measured(audit, arrived, placed)
        return replace(
            audit,
            found=found,
            moments=[
                Moment(row["at"], row["records"], row["records"] - row["dropped"], row["dropped"])
                for row in moments
            ],
            partitions=[
                replace(partition, resends=resends.get(partition.partition, 0))
                for partition in audit.partitions
            ],
        )

    def _instead(self, audit: Audit, own: Dialect, id_from: str) -> Resends:
        ranges = {audit.topic.name: audit.topic.part.ranges()}
        records = topic_reader.audited(
            topic_reader.scan(self.spark, self.options, ranges), own._replace(id_from=id_from)
        )
        there = audit.sum("keyed") if id_from == "key" else audit.records - audit.sum("tombstones")
        with kept(_arrived(audit, records, there)) as arrived:
            count = audit.layout.lanes
            lanes, _, _ = resend_counts.tallied(arrived, count, audit.first_ms, audit.last_ms)
            placed = resend_counts.in_lanes(Resends(id_from), lanes, count)
            return self._measured(audit, arrived, placed)

    def _headers(self, audit: Audit) -> Audit:
        """Read the headers of a small sample of the latest records."""
        spans = audit.topic.part.ranges()
        few = max(1, HEADERS_SAMPLED // len(spans))
        latest = {number: (max(begin, end - few), end) for number, (begin, end) in spans.items()}
        records = topic_reader.scan(self.spark, self.options, {audit.topic.name: latest})
        return replace(
            audit,
            headers_sample=sum(end - begin for begin, end in latest.values()),
            headers=keys.headers(topic_reader.headers_of(records)),
        )

    def _measured(self, audit: Audit, arrived: DataFrame, found: Resends) -> Resends:
        if not found.resends:
            return found
        alone = not found.forwarded and audit.layout.lanes == audit.layout.partitions
        with kept(frames.resends(arrived, alone=alone)) as resends:
            return resend_counts.spreads(resends, found, audit.confidence, audit.settings.id_cache_size)


def _arrived(audit: Audit, records: DataFrame, with_id: int) -> DataFrame:
    return frames.arrived(
        records,
        audit.layout,
        audit.partitioner,
        with_id=with_id,
        without_id=audit.records - with_id,
        max_age_ms=round(audit.settings.id_max_age * 1000),
    )


def dialect(keys: AddressDefaults) -> Dialect:
    """Return how an audit reads IDs and groups: it does not tell values of an ID apart."""
    return Dialect.of_address(keys)._replace(by_value=False)


def count_bridges(records: DataFrame) -> Bridges:
    """Count the hops of an audited topic's records.

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
    named = {printable(row["part_address"]): row["count"] for row in listed}
    return Transactions(**row.asDict(), addresses=named)


def _addresses() -> Column:
    parts = F.from_json(F.col("value").cast("string"), _ADDRESSES)["parts"]
    named = F.filter(F.transform(parts, lambda part: part["address"]), lambda address: address.isNotNull())
    return F.coalesce(named, F.array().cast("array<string>"))


def _has_id(own: str, dialect: Dialect, others: Mapping[str, Dialect]) -> Column:
    found = F.when(F.col("part_number") == 0, columns.id_of(dialect).isNotNull())
    for name, other in others.items():
        if name != own:
            found = found.when(F.col("part_address") == name, columns.id_of(other).isNotNull())
    return found.otherwise(columns.id_of(dialect).isNotNull())
