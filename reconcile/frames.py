"""The frames of a night: what its cut covers, and what the last night has handed on."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StringType, StructField, StructType

from conf.settings import AddressSettings
from reconcile import read
from reconcile.cut import AddressCut, TopicCut, ranges
from reconcile.evidence import carried_forwards, carried_outputs
from reconcile.files import Files
from reconcile.nights import Night, ids_folder, results_folder
from reconcile.rules import Rule
from reconcile.schemas import (
    ACCEPTED,
    ACCEPTED_SPANS,
    ANOMALIES,
    EVENTS,
    EVIDENCE,
    FORWARD_COMMITTED,
    FORWARDS,
    IDS,
    INPUTS,
    INT,
    LONG,
    OUTPUTS,
    RESENDS,
    RULES,
    SPANS,
)
from reconcile.small import small

_EVENT = "event string, address string, lane int, before bigint, after bigint, next map<string,bigint>"


@dataclass(slots=True)
class Frames:
    """Makes them. Addresses are numbers in frames, and names in what is kept."""

    spark: SparkSession
    options: Mapping[str, str]
    """Of the Kafka source."""
    addresses: Sequence[AddressSettings]
    cuts: Mapping[str, AddressCut]
    files: Files

    # -- from Kafka ------------------------------------------------------------------------------------------------

    def inputs(self, base: Night | None) -> DataFrame:
        """What came in, and what waited last night; with lane and forward offset, where they are known."""
        frames = []
        for dialect, members in self._dialects().items():
            topics = [self.cuts[each.name].input for each in members]
            records = self._scan(topics)
            if records is not None:
                numbers = self._numbers(lambda each: each.input_topic)
                frames.append(
                    read.inputs(records, dialect, numbers).withColumns(
                        {"lane": F.lit(None).cast(INT), "forward_offset": F.lit(None).cast(LONG)}
                    )
                )
        schema = StructType([*INPUTS.fields, *FORWARDS.fields[-2:]])
        carried = self._carried(base, "inputs", schema)
        return self._all([*frames, *carried], schema)

    def forwards(self, ahead: DataFrame | None) -> DataFrame | None:
        """What was forwarded; None = nothing."""
        records = self._scan([cut.forward for cut in self.cuts.values()])
        frames = []
        if records is not None:
            forward = {each.name: self.cuts[each.name].forward.topic for each in self.addresses}
            inputs = {forward[each.name]: each.input_topic for each in self.addresses}
            frames.append(read.forwards(records, inputs, self._numbers(lambda each: forward[each.name])))
        if ahead is not None:
            frames.append(carried_forwards(ahead))
        return read.concatenated(frames) if frames else None

    def outputs(self, ahead: DataFrame | None) -> DataFrame:
        """What came out, and what last night saw of inputs beyond its cut."""
        roles: list[tuple[Any, Callable[[AddressCut], TopicCut | None]]] = [
            (read.accepted, lambda cut: cut.accepted),
            (read.diverted, lambda cut: cut.duplicates),
            (read.quarantined, lambda cut: cut.quarantine),
        ]
        frames = []
        for reader, role in roles:
            topics = {
                each.name: cut for each in self.addresses if (cut := role(self.cuts[each.name])) is not None
            }
            records = self._scan(list(topics.values()))
            if records is not None:
                there = [each for each in self.addresses if each.name in topics]
                inputs = {topics[each.name].topic: each.input_topic for each in there}
                numbers = {topics[each.name].topic: self.addresses.index(each) for each in there}
                frames.append(reader(records, inputs, numbers))
        if ahead is not None:
            frames.append(carried_outputs(ahead))
        return self._all(frames, OUTPUTS)

    def backlog(self, beyond: read.Ranges) -> DataFrame | None:
        """Address and partition of each committed record beyond the cut."""
        if not beyond:
            return None
        numbers = self._numbers(lambda each: each.input_topic)
        records = read.scan(self.spark, self.options, beyond)
        return records.select(
            F.coalesce(*(F.when(F.col("topic") == t, n) for t, n in numbers.items())).alias("address"),
            "partition",
        )

    def events(self, journal: str, spans: Mapping[int, tuple[int, int]]) -> DataFrame | None:
        """:data:`reconcile.schemas.EVENTS`; None = nothing was written down."""
        if not spans:
            return None
        records = read.scan(self.spark, self.options, {journal: spans})
        told = records.withColumn("told", F.from_json(F.col("value").cast("string"), _EVENT))
        next_input, next_forward = (
            self._by_name({each.name: F.lit(topic(each)) for each in self.addresses}, F.col("told.address"))
            for topic in (lambda each: each.input_topic, lambda each: self.cuts[each.name].forward.topic)
        )
        numbered = told.select(
            self._by_name({each.name: F.lit(n) for n, each in enumerate(self.addresses)}, F.col("told.address")).alias("address"),
            F.col("told.lane").alias("lane"),
            F.col("offset").alias("number"),
            F.coalesce(F.try_element_at("told.next", next_input), F.lit(0)).alias("input_next"),
            F.coalesce(F.try_element_at("told.next", next_forward), F.lit(0)).alias("forward_next"),
            F.col("told.before").alias("before"),
            F.col("told.after").alias("after"),
        )  # fmt: skip
        return numbered.where("address is not null").select(*EVENTS.names)

    def _dialects(self) -> dict[read.Dialect, list[AddressSettings]]:
        found: dict[read.Dialect, list[AddressSettings]] = {}
        for each in self.addresses:
            found.setdefault(read.Dialect.of(each), []).append(each)
        return found

    def _scan(self, topics: Sequence[TopicCut]) -> DataFrame | None:
        wanted = ranges(topics)
        return read.scan(self.spark, self.options, wanted) if wanted else None

    def _numbers(self, topic: Callable[[AddressSettings], str]) -> dict[str, int]:
        return {topic(each): number for number, each in enumerate(self.addresses)}

    def _all(self, frames: Sequence[DataFrame], schema: StructType) -> DataFrame:
        return read.concatenated(frames) if frames else small(self.spark, [], schema)

    # -- from the night before, and for the next ----------------------------------------------------------------------

    def ahead(self, base: Night | None) -> DataFrame | None:
        """What last night saw of inputs beyond its cut."""
        carried = self._carried(base, "ahead", EVIDENCE)
        return carried[0] if carried else None

    def carries(self, base: Night | None) -> bool:
        """Whether the last night has handed something on."""
        return base is not None and bool(
            {"inputs", "ahead"} & set(self.files.names(results_folder(base.number)))
        )

    def _carried(self, base: Night | None, name: str, schema: StructType) -> list[DataFrame]:
        if base is None or name not in self.files.names(results_folder(base.number)):
            return []
        kept = self._parquet(schema, self.files.at(results_folder(base.number), name))
        return [self._numbered(kept, self._same())]

    def ids(self, chain: Sequence[Night]) -> DataFrame:
        """:data:`reconcile.schemas.IDS` of earlier nights."""
        frames = [
            self._numbered(
                self._parquet(
                    StructType(IDS.fields[:-1]), self.files.at(ids_folder(night.date, night.number))
                ),
                self._same(),
            ).withColumn("night", F.lit(night.number))
            for night in chain
            if f"night={night.number}" in self.files.names(f"accepted/date={night.date}")
        ]
        return self._all(frames, IDS)

    def resends(self, nights: Sequence[Night], tonight: int) -> DataFrame | None:
        """:data:`reconcile.schemas.RESENDS` of tonight, and of nights before that judged the same topics; None = there were none.

        Where the ring is off now, nothing is asked of it, whatever it saw while it was on.
        """
        on = {each.name for each in self.addresses if each.id_cache_size}
        kept = [(each.number, {name for name in on if each.judged(self.cuts[name].input)}) for each in nights]
        frames = [
            self._numbered(self._parquet(RESENDS, self.files.at(results_folder(number), "resends")), names)
            for number, names in [*kept, (tonight, on)]
            if "resends" in self.files.names(results_folder(number))
        ]
        return read.concatenated(frames) if frames else None

    def _parquet(self, schema: StructType, path: str) -> DataFrame:
        named = StructType(
            [
                StructField(each.name, StringType() if each.name == "address" else each.dataType)
                for each in schema
            ]
        )
        return self.spark.read.schema(named).parquet(path)

    def _same(self) -> set[str]:
        """Addresses whose input did not become another topic since the last night."""
        return {each.name for each in self.addresses if not self.cuts[each.name].input.recreated}

    def _numbered(self, kept: DataFrame, names: Collection[str]) -> DataFrame:
        """Names become numbers; all but these, and what is no longer configured, is left out."""
        numbers = {each.name: F.lit(n) for n, each in enumerate(self.addresses) if each.name in names}
        number = self._by_name(numbers, F.col("address")) if numbers else F.lit(None).cast(INT)
        return kept.withColumn("address", number).where("address is not null")

    def named(self, frame: DataFrame) -> DataFrame:
        """Numbers become names: configurations change."""
        names = F.array(*(F.lit(each.name) for each in self.addresses))
        return frame.withColumn("address", F.get(names, F.col("address")))

    def topics_named(self, anomalies: DataFrame) -> DataFrame:
        """Anomalies with the names of all topics that they are about."""
        fate = F.coalesce("fate", F.when(F.col("out_offset").isNotNull(), F.lit(ACCEPTED)))
        inputs = F.array(*(F.lit(each.input_topic) for each in self.addresses))
        outputs = [
            F.array(*(F.lit(getattr(each, topic)) for each in self.addresses))
            for topic in ("accepted_topic", "duplicates_topic", "quarantine_topic")
        ]
        out = F.coalesce(
            "out_topic",
            *(F.when(fate == n, F.get(each, F.col("address"))) for n, each in enumerate(outputs, 1)),
        )
        columns = [
            each for each in ANOMALIES.names if each not in {"fate", "out_topic", "anomaly", "address"}
        ]
        at = columns.index("out_partition")
        named = anomalies.withColumns({"out_topic": out, "topic": F.get(inputs, F.col("address"))})
        return self.named(named).select(
            "anomaly", "address", "topic", *columns[:at], "out_topic", *columns[at:]
        )

    @staticmethod
    def _by_name(values: Mapping[str, Column], name: Column) -> Column:
        return F.coalesce(*(F.when(name == each, value) for each, value in values.items()))

    # -- small ones ----------------------------------------------------------------------------------------------------

    def spans(self) -> DataFrame:
        """:data:`reconcile.schemas.SPANS`."""
        rows = [
            (number, partition, *span)
            for number, each in enumerate(self.addresses)
            for partition, span in enumerate(self.cuts[each.name].input.spans)
        ]
        return small(self.spark, rows, SPANS)

    def accepted_spans(self) -> DataFrame:
        """:data:`reconcile.schemas.ACCEPTED_SPANS`, of topics that were not made anew."""
        rows = [
            (number, partition, span.begin)
            for number, each in enumerate(self.addresses)
            if not self.cuts[each.name].accepted.recreated
            for partition, span in enumerate(self.cuts[each.name].accepted.spans)
        ]
        return small(self.spark, rows, ACCEPTED_SPANS)

    def forward_committed(self) -> DataFrame:
        """:data:`reconcile.schemas.FORWARD_COMMITTED`."""
        rows = [
            (number, lane, offset)
            for number, each in enumerate(self.addresses)
            for lane, offset in enumerate(self.cuts[each.name].forward_committed)
        ]
        return small(self.spark, rows, FORWARD_COMMITTED)

    def rules(self, several: Sequence[Rule]) -> DataFrame:
        """:data:`reconcile.schemas.RULES`, of each address one."""
        return small(self.spark, [(number, *each) for number, each in enumerate(several)], RULES)
