"""Data frames of a run from Kafka, within its cut."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from reconcile.run.frames import ring_numbers
from reconcile.run.frames.distributions import by_address
from reconcile.run.history.cut import AddressCut, TopicCut, ranges
from reconcile.run.history.rings import Rings
from reconcile.spark import columns, outputs, topic_reader
from reconcile.spark.columns import constant
from reconcile.spark.schemas import ACCEPTED, DIVERTED, EVENTS, LONG, QUARANTINED
from ringfence_kafka.config.chains import feeders
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names

AWAY: Final = -1  # number of addresses that are not configured now
_EVENT_FORMAT: Final = 3
_FORMAT_LANES: Final = 3
"""First event format with the key ``lanes`` and with ``next`` by topic and partition."""
_EVENT: Final = (
    "format int, event string, address string, lane int, before bigint, after bigint, next map<string,bigint>, "
    "topic_ids map<string,string>, lanes int"
)


_KNOWN: Final = "array<struct<number: int, partitions: int, input: struct<topic: string, id: string>, forward: struct<topic: string, id: string>>>"
"""Type of the topics of each address, which events are compared with."""


@dataclass(slots=True)
class Sources:
    """Reads the topics. Frames have numbers of addresses, and files have names."""

    spark: SparkSession
    options: Mapping[str, str]  # options of Spark's Kafka source
    addresses: Sequence[AddressSettings]
    cuts: Mapping[str, AddressCut]
    rings: Sequence[Rings] = field(
        default=(), kw_only=True
    )  # of each address; empty = lanes were never regrouped

    def ring_numbers(self) -> Sequence[Rings]:
        """Return the rings of each address."""
        return self.rings or [
            Rings.from_settings(address.lanes, len(self.cuts[address.name].input.spans))
            for address in self.addresses
        ]

    def came_in(self) -> list[DataFrame]:
        """Return :data:`reconcile.spark.schemas.INPUTS`, one frame for each way to read IDs and groups."""
        fed = feeders(self.addresses)
        chained = sorted({address.input_topic for address in self.addresses if address.name in fed})
        members: dict[columns.Dialect, list[AddressSettings]] = {}
        for address in self.addresses:
            members.setdefault(columns.Dialect.of_address(address), []).append(address)
        frames = []
        for dialect, addresses in members.items():
            records = self._scan([self.cuts[address.name].input for address in addresses])
            if records is not None:
                targets = {address.input_topic: self._targets(address) for address in addresses}
                frames.append(topic_reader.inputs(records, dialect, self._input_numbers(), targets, chained))
        return frames

    def came_between(self) -> list[DataFrame]:
        """Return :data:`reconcile.spark.schemas.FORWARDS`."""
        cuts = {n: self.cuts[address.name].forward for n, address in enumerate(self.addresses)}
        there = {n: cut for n, cut in cuts.items() if cut is not None}
        records = self._scan([*there.values()])
        if records is None:
            return []
        inputs = {cut.topic: self.addresses[n].input_topic for n, cut in there.items()}
        found = topic_reader.forwards(records, inputs, {cut.topic: n for n, cut in there.items()})
        return [found.withColumn("lane", ring_numbers.of_forwards(self.ring_numbers()))]

    def came_out(self) -> list[DataFrame]:
        """Return :data:`reconcile.spark.schemas.OUTPUTS`, one frame for each fate."""
        frames = []
        for fate, role in ((ACCEPTED, "accepted"), (DIVERTED, "duplicates"), (QUARANTINED, "quarantine")):
            cuts: list[TopicCut | None] = [getattr(self.cuts[item.name], role) for item in self.addresses]
            records = self._scan([cut for cut in cuts if cut is not None])
            if records is not None:
                numbers = {cut.topic: number for number, cut in enumerate(cuts) if cut is not None}
                inputs = {topic: self.addresses[number].input_topic for topic, number in numbers.items()}
                sources = self._sources() if fate == ACCEPTED else {}
                frames.append(outputs.outputs(records, fate, inputs, numbers, sources))
        return frames

    def _targets(self, address: AddressSettings) -> topic_reader.Targets:
        others = (
            topic_reader.Target(number, other.name, columns.Dialect.of_address(other))
            for number, other in enumerate(self.addresses)
            if other.name in address.transaction_addresses
        )
        return topic_reader.Targets(address.name, tuple(others))

    def _sources(self) -> dict[str, dict[str, int]]:
        """Return by accepted topic the inputs of other addresses that parts may come from, and their numbers."""
        return {
            self.cuts[address.name].accepted.topic: dict.fromkeys(self.away(address.name), AWAY)
            | {
                other.input_topic: number
                for number, other in enumerate(self.addresses)
                if address.name in other.transaction_addresses
            }
            for address in self.addresses
        }

    def away(self, address: str) -> Sequence[str]:
        """Return inputs of former addresses whose transactions had parts for this address."""
        return ()

    def backlog(self, beyond: topic_reader.Ranges) -> DataFrame | None:
        """Return address and partition of each committed record beyond the cut."""
        if not beyond:
            return None
        records = topic_reader.scan(self.spark, self.options, beyond)
        return records.select(columns.by_topic(self._input_numbers(), "int").alias("address"), "partition")

    def events(
        self, journal: str, spans: Mapping[int, tuple[int, int]], begins: Mapping[str, int]
    ) -> DataFrame | None:
        """Return :data:`reconcile.spark.schemas.EVENTS` in ``spans`` of the journal; None = no spans.

        ``begins``: address → offset in the journal; earlier events concern a deleted input.
        """
        if not spans:
            return None
        return self.events_in(topic_reader.scan(self.spark, self.options, {journal: spans}), begins)

    def events_in(self, records: DataFrame, begins: Mapping[str, int]) -> DataFrame:
        """Return the events among records of the journal."""
        read = records.withColumn("event", F.from_json(F.col("value").cast("string"), _EVENT))
        text = "the journal is of a later version of the workers: use its ringfence reconcile"
        later = F.raise_error(F.lit(text)).cast(LONG)
        numbers = self.numbers()
        of_hops = F.coalesce(F.col("event.address").startswith(wire_names.HOP_MEMORY), F.lit(False))
        bare = F.substr("event.address", F.lit(len(wire_names.HOP_MEMORY) + 1))
        address = F.when(of_hops, bare).otherwise(F.col("event.address"))
        named = read.withColumns({"address": address, "of_hops": of_hops})
        several = F.col("event.format") >= _FORMAT_LANES
        place = F.array_position(constant([*numbers], "array<string>"), F.col("address")).cast("int") - 1
        cuts = constant([self._known(number) for number in numbers.values()], _KNOWN)
        known = named.withColumn("of", F.get(cuts, place)).withColumn("nexts", F.when(several, _nexts()))
        numbered = known.select(
            F.col("of.number").alias("address"),
            "event.lane",
            F.when(F.col("event.format") > _EVENT_FORMAT, later).otherwise(F.col("offset")).alias("number"),
            F.coalesce(_next("of.input"), F.lit(0)).alias("input_next"),
            F.coalesce(_next("of.forward"), F.lit(0)).alias("forward_next"),
            "event.before", "event.after", "event.event", "of_hops",
            "nexts", "event.lanes",
        )  # fmt: skip
        if any(rings.regroups for rings in self.rings):
            numbered = numbered.withColumn("lane", ring_numbers.of_events(self.rings))
        from_ = by_address([begins.get(address.name, 0) for address in self.addresses])
        return numbered.where(F.col("address").isNotNull() & (F.col("number") >= from_)).select(*EVENTS.names)

    def _known(self, number: int) -> dict[str, object]:
        """Return an item of :data:`_KNOWN`."""
        cut = self.cuts[self.addresses[number].name]
        return {
            "number": number,
            "partitions": len(cut.input.spans),
            "input": {"topic": cut.input.topic, "id": cut.input.topic_id},
            "forward": {"topic": cut.forward.topic, "id": cut.forward.topic_id} if cut.forward else None,
        }

    def numbers(self) -> dict[str, int]:
        """Return numbers of addresses by their present names, and by their names in the last run."""
        named = {address.name: n for n, address in enumerate(self.addresses)}
        return {former: n for name, n in named.items() if (former := self.cuts[name].former)} | named

    def _scan(self, topics: Sequence[TopicCut]) -> DataFrame | None:
        wanted = ranges(topics)
        return topic_reader.scan(self.spark, self.options, wanted) if wanted else None

    def _input_numbers(self) -> dict[str, int]:
        return {address.input_topic: number for number, address in enumerate(self.addresses)}


def _next(topic: str) -> Column:
    """Return the offset in a topic before which all records precede the event.

    An event of a deleted topic precedes all records. A lane has one partition of its forward topic, even if
    it has several of the input.
    """
    name = F.col(f"{topic}.topic")
    return F.when(
        _is_of(topic),
        F.coalesce(_recorded_place(name), _recorded_place(name, F.col("event.lane"))),
    )


def _nexts() -> Column:
    """Return offsets as in :func:`_next` by input partition; 0 = not read by the lane before the event."""
    name, lane = F.col("of.input.topic"), F.col("event.lane")

    def next_of(partition: Column) -> Column:
        own = F.when(lane == partition, _recorded_place(name))
        found = F.coalesce(_recorded_place(name, partition), own, F.lit(0))
        return F.when(_is_of("of.input"), found).otherwise(F.lit(0)).cast(LONG)

    return F.transform(F.sequence(F.lit(0), F.col("of.partitions") - 1), next_of)


def _recorded_place(topic: Column, *partition: Column) -> Column:
    """Return the offset that an event records for a topic, or for a partition of it; null = none."""
    return F.try_element_at("event.next", F.concat_ws("/", topic, *partition))


def _is_of(topic: str) -> Column:
    of = F.try_element_at("event.topic_ids", F.col(f"{topic}.topic"))
    return of.isNull() | (of == F.col(f"{topic}.id"))
