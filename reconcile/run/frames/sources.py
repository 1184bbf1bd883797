"""The frames of a night that Kafka gives, as far as the cut covers them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from reconcile.run.frames.distributions import by_address
from reconcile.run.history.cut import AddressCut, TopicCut, ranges
from reconcile.spark import outputs, topic_reader
from reconcile.spark.schemas import EVENTS, LONG
from ringfence_kafka.config.addresses import feeders
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names

AWAY: Final = -1
"""Number of an address that is not configured now."""
_EVENT_FORMAT: Final = 2
_EVENT: Final = (
    "format int, event string, address string, lane int, before bigint, after bigint, next map<string,bigint>, "
    "topic_ids map<string,string>"
)


@dataclass(slots=True)
class Sources:
    """Reads them. Addresses are numbers in frames, and names in what is kept."""

    spark: SparkSession
    options: Mapping[str, str]
    """Of the Kafka source."""
    addresses: Sequence[AddressSettings]
    cuts: Mapping[str, AddressCut]

    def came_in(self) -> list[DataFrame]:
        """:data:`reconcile.spark.schemas.INPUTS`."""
        frames = []
        fed = feeders(self.addresses)
        chained = {address.input_topic for address in self.addresses if address.name in fed}
        for dialect, members in self._dialects().items():
            records = self._scan([self.cuts[member.name].input for member in members])
            if records is not None:
                targets = {member.input_topic: self._targets(member) for member in members}
                numbers = self._numbers(lambda each: each.input_topic)
                frames.append(topic_reader.inputs(records, dialect, numbers, targets, sorted(chained)))
        return frames

    def came_between(self) -> list[DataFrame]:
        """:data:`reconcile.spark.schemas.FORWARDS`."""
        records = self._scan([cut.forward for cut in self.cuts.values()])
        if records is None:
            return []
        forward = {address.name: self.cuts[address.name].forward.topic for address in self.addresses}
        inputs = {forward[address.name]: address.input_topic for address in self.addresses}
        return [topic_reader.forwards(records, inputs, self._numbers(lambda each: forward[each.name]))]

    def came_out(self) -> list[DataFrame]:
        """:data:`reconcile.spark.schemas.OUTPUTS`."""
        roles: list[tuple[Any, Callable[[AddressCut], TopicCut | None]]] = [
            (partial(outputs.accepted, sources=self._sources()), lambda cut: cut.accepted),
            (outputs.diverted, lambda cut: cut.duplicates),
            (outputs.quarantined, lambda cut: cut.quarantine),
        ]
        frames = []
        for reader, role in roles:
            topics = {
                address.name: cut
                for address in self.addresses
                if (cut := role(self.cuts[address.name])) is not None
            }
            records = self._scan(list(topics.values()))
            if records is not None:
                there = [address for address in self.addresses if address.name in topics]
                inputs = {
                    topics[address_settings.name].topic: address_settings.input_topic
                    for address_settings in there
                }
                numbers = {
                    topics[address_settings.name].topic: self.addresses.index(address_settings)
                    for address_settings in there
                }
                frames.append(reader(records, inputs, numbers))
        return frames

    def _targets(self, address: AddressSettings) -> topic_reader.Targets:
        """What parts of its envelopes may be for."""
        return topic_reader.Targets(
            address.name,
            tuple(
                topic_reader.Target(number, address_settings.name, topic_reader.Dialect.of(address_settings))
                for number, address_settings in enumerate(self.addresses)
                if address_settings.name in address.transaction_addresses
            ),
        )

    def _sources(self) -> dict[str, list[outputs.Source]]:
        """Accepted topic → inputs of other addresses that parts in it may come from."""
        return {
            self.cuts[address.name].accepted.topic: [
                *(
                    outputs.Source(number, other.input_topic)
                    for number, other in enumerate(self.addresses)
                    if address.name in other.transaction_addresses
                ),
                *(outputs.Source(AWAY, topic) for topic in self.away(address.name)),
            ]
            for address in self.addresses
        }

    def away(self, address: str) -> Sequence[str]:
        """Inputs of addresses that are not configured now, and that had transactions with parts for this one."""
        return ()

    def backlog(self, beyond: topic_reader.Ranges) -> DataFrame | None:
        """Address and partition of each committed record beyond the cut."""
        if not beyond:
            return None
        numbers = self._numbers(lambda each: each.input_topic)
        records = topic_reader.scan(self.spark, self.options, beyond)
        return records.select(
            F.coalesce(*(F.when(F.col("topic") == t, n) for t, n in numbers.items())).alias("address"),
            "partition",
        )

    def events(
        self, journal: str, spans: Mapping[int, tuple[int, int]], begins: Mapping[str, int]
    ) -> DataFrame | None:
        """:data:`reconcile.spark.schemas.EVENTS`; None = nothing was written down.

        Args:
            journal: The topic.
            spans: What there is of it, by partition.
            begins: Address → offset: what stands below is of an input that was deleted.
        """
        if not spans:
            return None
        return self.events_in(topic_reader.scan(self.spark, self.options, {journal: spans}), begins)

    def events_in(self, records: DataFrame, begins: Mapping[str, int]) -> DataFrame:
        """Of the journal's records."""
        told = records.withColumn("told", F.from_json(F.col("value").cast("string"), _EVENT))
        later = F.raise_error(
            F.lit("the journal is of a later version of the workers: use its ringfence reconcile")
        ).cast(LONG)
        # An address may be named so itself.
        numbers = self.numbers()
        own = F.col("told.address").isin([*numbers])
        of_hops = F.coalesce(F.col("told.address").startswith(wire_names.HOP_MEMORY) & ~own, F.lit(False))
        bare = F.substr("told.address", F.lit(len(wire_names.HOP_MEMORY) + 1))
        address = F.when(of_hops, bare).otherwise(F.col("told.address"))
        named = told.withColumns({"address": address, "of_hops": of_hops})
        cuts = {name: self.cuts[self.addresses[n].name] for name, n in numbers.items()}
        inputs = {name: _next(cut.input) for name, cut in cuts.items()}
        forwards = {name: _next(cut.forward) for name, cut in cuts.items()}
        numbered = named.select(
            self._by_name({name: F.lit(n) for name, n in numbers.items()}, F.col("address")).alias("address"),
            F.col("told.lane").alias("lane"),
            F.when(F.col("told.format") > _EVENT_FORMAT, later).otherwise(F.col("offset")).alias("number"),
            F.coalesce(self._by_name(inputs, F.col("address")), F.lit(0)).alias("input_next"),
            F.coalesce(self._by_name(forwards, F.col("address")), F.lit(0)).alias("forward_next"),
            F.col("told.before").alias("before"),
            F.col("told.after").alias("after"),
            F.col("told.event").alias("event"),
            "of_hops",
        )  # fmt: skip
        from_ = by_address([begins.get(address.name, 0) for address in self.addresses])
        return numbered.where(F.col("address").isNotNull() & (F.col("number") >= from_)).select(*EVENTS.names)

    def numbers(self) -> dict[str, int]:
        """Of the addresses, by their names, and by those that they had on the last night."""
        named = {address.name: n for n, address in enumerate(self.addresses)}
        return {former: n for name, n in named.items() if (former := self.cuts[name].former)} | named

    def _dialects(self) -> dict[topic_reader.Dialect, list[AddressSettings]]:
        found: dict[topic_reader.Dialect, list[AddressSettings]] = {}
        for address in self.addresses:
            found.setdefault(topic_reader.Dialect.of(address), []).append(address)
        return found

    def _scan(self, topics: Sequence[TopicCut]) -> DataFrame | None:
        wanted = ranges(topics)
        return topic_reader.scan(self.spark, self.options, wanted) if wanted else None

    def _numbers(self, topic: Callable[[AddressSettings], str]) -> dict[str, int]:
        return {topic(address): number for number, address in enumerate(self.addresses)}

    @staticmethod
    def _by_name(values: Mapping[str, Column], name: Column) -> Column:
        return F.coalesce(*(F.when(name == item, value) for item, value in values.items()))


def _next(topic: TopicCut) -> Column:
    """Up to where an event stands behind what is in a topic. One that was told of a topic that had its name before stands before all."""
    of = F.try_element_at("told.topic_ids", F.lit(topic.topic))
    return F.when(of.isNull() | (of == topic.topic_id), F.try_element_at("told.next", F.lit(topic.topic)))
