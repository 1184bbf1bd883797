"""Data frames of a run: topics within its cut, and state from the last run."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from reconcile.run.frames.evidence import carried_forwards, carried_outputs
from reconcile.run.frames.sources import AWAY, Sources
from reconcile.run.history import id_store
from reconcile.run.history.history import Run
from reconcile.run.history.layout import ACCEPTED as ACCEPTED_IDS
from reconcile.run.history.layout import RUN_COLUMN, results_folder
from reconcile.run.history.rules import diverts
from reconcile.spark import schemas, topic_reader
from reconcile.spark.columns import constant, small, value_of
from reconcile.spark.files import Files

_IDS_ON_DISK: Final = StructType(
    [StructField(RUN_COLUMN, schemas.INT) if item.name == "run" else item for item in schemas.IDS]
)


@dataclass(slots=True)
class Frames(Sources):
    """Builds the data frames of a run from topics and files."""

    files: Files
    base: Run | None = None  # run from whose end this run continues

    def inputs(self) -> DataFrame:
        """Return new inputs, and those that waited in the last run, with lane and forward offset if known."""
        unknown = {"lane": F.lit(None).cast(schemas.INT), "forward_offset": F.lit(None).cast(schemas.LONG)}
        schema = StructType([*schemas.INPUTS.fields, *schemas.FORWARDS.fields[-2:]])
        came = [frame.withColumns(unknown) for frame in self.came_in()]
        return self._all([*came, *self._carried("inputs", schema)], schema)

    def forwards(self, ahead: DataFrame | None) -> DataFrame | None:
        """Return forwarded inputs; None = no forwarded inputs."""
        frames = [*self.came_between(), *([] if ahead is None else [carried_forwards(ahead)])]
        return topic_reader.concatenated(frames) if frames else None

    def outputs(self, ahead: DataFrame | None) -> DataFrame:
        """Return new outputs, and outputs from the last run whose inputs lay beyond its cut."""
        # No run judges the transactions of an address that is not configured.
        came = [self._not_judged_without(frame).where(F.col("address") != AWAY) for frame in self.came_out()]
        return self._all([*came, *([] if ahead is None else [carried_outputs(ahead)])], schemas.OUTPUTS)

    def away(self, address: str) -> list[str]:
        """Return inputs of former addresses whose transactions had parts for this address."""
        configured = {address.name for address in self.addresses}
        return [
            str(rule["input_topic"])
            for name, rule in (self.base.rules.items() if self.base else ())
            if name not in configured and address in rule.get("transaction_addresses", ())
        ]

    def _not_judged_without(self, outputs: DataFrame) -> DataFrame:
        """Remove diverted duplicates of inputs that were judged while the address dropped duplicates."""
        numbers = [
            number
            for number, address in enumerate(self.addresses)
            if address.duplicates == "divert" and not diverts(address, self.base)
        ]
        if not numbers:
            return outputs
        begins = self.spans().where(F.col("address").isin(numbers)).select("address", "partition", "begin")
        known = outputs.join(F.broadcast(begins), on=["address", "partition"], how="left")
        judged = (F.col("fate") == schemas.DIVERTED) & (F.col("offset") < F.col("begin"))
        return known.where(~F.coalesce(judged, F.lit(False))).select(*schemas.OUTPUTS.names)

    def _all(self, frames: Sequence[DataFrame], schema: StructType) -> DataFrame:
        return topic_reader.concatenated(frames) if frames else small(self.spark, [], schema)

    def ahead(self) -> DataFrame | None:
        """Return evidence of the last run on inputs beyond its cut; None = no such evidence."""
        carried = self._carried("ahead", schemas.EVIDENCE)
        return topic_reader.concatenated(carried) if carried else None

    def hops(self) -> DataFrame | None:
        """Return :data:`reconcile.spark.schemas.HOPS` of the last run; None = no hops.

        Lanes keep the hops of an input that was replaced. Such hops get offset -1, before all records of the
        new input.
        """
        everywhere = self._left([address.name for address in self.addresses])
        carried = self._carried("hops", schemas.HOPS, everywhere)
        if not carried:
            return None
        same = self._same()
        another = [n for n, address in enumerate(self.addresses) if address.name not in same]
        gone = F.col("address").isin(another) if another else F.lit(False)
        return topic_reader.concatenated(carried).withColumn(
            "offset", F.when(gone, -1).otherwise(F.col("offset")).cast(schemas.LONG)
        )

    def carries(self) -> bool:
        """Return whether the last run left inputs or outputs for this run."""
        return any({"inputs", "ahead"} & set(self.files.names(results_folder(n))) for n in self.left())

    def left(self) -> dict[int, set[str]]:
        """Return run → addresses whose waiting state lies in the results of that run."""
        return self._left(self._same())

    def _left(self, names: Collection[str]) -> dict[int, set[str]]:
        runs: dict[int, set[str]] = {}
        if self.base is None:
            return runs
        for name in names:
            runs.setdefault(self.base.left_by(name), set()).add(name)
        return runs

    def _carried(
        self, name: str, schema: StructType, left: dict[int, set[str]] | None = None
    ) -> list[DataFrame]:
        left = self.left() if left is None else left
        return [
            self._forwards_again(
                self._numbered(self._parquet(schema, self.files.at(results_folder(run), name)), names)
            )
            for run, names in sorted(left.items())
            if name in self.files.names(results_folder(run))
        ]

    def _forwards_again(self, kept: DataFrame) -> DataFrame:
        """Move offsets of a replaced forward topic before all offsets of the new one."""
        forwards = {n: self.cuts[address.name].forward for n, address in enumerate(self.addresses)}
        another = [n for n, forward in forwards.items() if forward is not None and forward.recreated]
        if not another:
            return kept
        gone = F.col("address").isin(another) & F.col("forward_offset").isNotNull()
        return kept.withColumn("forward_offset", F.when(gone, -1).otherwise(F.col("forward_offset")))

    def ids(self, chain: Sequence[Run]) -> DataFrame:
        """Return :data:`reconcile.spark.schemas.IDS` of earlier runs on the same topics."""
        there = id_store.kept(self.files)
        same = [address for address in self.addresses if address.name in self._same()]
        numbers = self.numbers()
        folders = [
            id_store.address_folder(run.date, run.number, name)
            for run in chain
            for name in there.get(run.number, ())
            if name in numbers
            and (address := self.addresses[numbers[name]]) in same
            and not run.judged_another(self.cuts[address.name].input)
        ]
        if not folders:
            return small(self.spark, [], schemas.IDS)
        paths = [self.files.at(folder) for folder in folders]
        rows = self._parquet(_IDS_ON_DISK, *paths, base=self.files.at(ACCEPTED_IDS))
        kept = self._numbered(rows, {address.name for address in same})
        return kept.withColumnRenamed(RUN_COLUMN, "run").select(*schemas.IDS.names)

    def resends(self, runs: Sequence[Run], this_run: int) -> DataFrame | None:
        """Return :data:`reconcile.spark.schemas.RESENDS` of runs on the same topics; None = no resends.

        Addresses whose ring is off now are left out.
        """
        on = {address.name for address in self.addresses if address.id_cache_size}
        kept = [(run.number, {name for name in on if run.judged(self.cuts[name].input)}) for run in runs]
        frames = [
            self._numbered(
                self._parquet(schemas.RESENDS, self.files.at(results_folder(number), "resends")), names
            )
            for number, names in [*kept, (this_run, on)]
            if "resends" in self.files.names(results_folder(number))
        ]
        return topic_reader.concatenated(frames) if frames else None

    def _parquet(self, schema: StructType, *paths: str, base: str = "") -> DataFrame:
        """Read Parquet rows, with the names of folders below ``base`` as columns."""
        named = StructType(
            [
                StructField(item.name, StringType()) if item.name in schemas.ADDRESSES else item
                for item in schema
            ]
        )
        reader = self.spark.read.schema(named)
        return (reader.option("basePath", base) if base else reader).parquet(*paths)

    def _same(self) -> set[str]:
        """Return addresses whose input is the same topic as in the last run."""
        return {
            address.name
            for address in self.addresses
            if not self.cuts[address.name].input.recreated
            and (
                self.base is None
                or self.base.rules.get(address.name, {}).get("input_topic", address.input_topic)
                == address.input_topic
            )
        }

    def _numbered(self, kept: DataFrame, names: Collection[str]) -> DataFrame:
        """Replace names of addresses by numbers. Other addresses, and those not configured, are left out."""
        numbers = self.numbers()
        own = {name: n for name, n in numbers.items() if self.addresses[n].name in names}
        found = {
            column: value_of(own if column == "address" else numbers, "int", F.col(column))
            for column in kept.columns
            if column in schemas.ADDRESSES
        }
        return kept.withColumns(found).where("address is not null")

    def named(self, frame: DataFrame) -> DataFrame:
        """Replace numbers of addresses by names, since a later configuration may number them differently."""
        names = constant([address.name for address in self.addresses], "array<string>")
        return frame.withColumns(
            {column: F.get(names, F.col(column)) for column in frame.columns if column in schemas.ADDRESSES}
        )

    def topics_named(self, anomalies: DataFrame) -> DataFrame:
        """Add the names of all topics to anomalies."""
        fate = F.coalesce("fate", F.when(F.col("out_offset").isNotNull(), schemas.ACCEPTED))
        inputs = constant([address.input_topic for address in self.addresses], "array<string>")
        outputs = [
            constant([getattr(address, topic) for address in self.addresses], "array<string>")
            for topic in ("accepted_topic", "duplicates_topic", "quarantine_topic", "accepted_topic")
        ]
        out = F.coalesce(
            "out_topic",
            *(
                F.when(fate == n, F.get(output, F.coalesce("out_address", "address")))
                for n, output in enumerate(outputs, 1)
            ),
        )
        first = ("anomaly", "address", "topic")
        others = [name for name in schemas.ANOMALIES.names if name not in {*first, "fate", "out_address"}]
        named = anomalies.withColumns({"out_topic": out, "topic": F.get(inputs, F.col("address"))})
        return self.named(named).select(*first, *others)

    def gaps(self) -> DataFrame:
        """Return :data:`reconcile.spark.schemas.GAPS`."""
        found = [
            (number, item.partition, item.begin, None, None, None, item.text)
            if item.topic == address.input_topic
            else (number, None, None, item.topic, item.partition, item.begin, item.text)
            for number, address in enumerate(self.addresses)
            for item in self.cuts[address.name].lost
        ]
        return small(self.spark, found, schemas.GAPS)

    def spans(self) -> DataFrame:
        """Return :data:`reconcile.spark.schemas.SPANS`."""
        rows = [
            (number, partition, *span)
            for number, address in enumerate(self.addresses)
            for partition, span in enumerate(self.cuts[address.name].input.spans)
        ]
        return small(self.spark, rows, schemas.SPANS)

    def accepted_spans(self) -> DataFrame:
        """Return :data:`reconcile.spark.schemas.ACCEPTED_SPANS`, without topics that were created again."""
        rows = [
            (number, partition, span.begin)
            for number, address in enumerate(self.addresses)
            if not self.cuts[address.name].accepted.recreated
            for partition, span in enumerate(self.cuts[address.name].accepted.spans)
        ]
        return small(self.spark, rows, schemas.ACCEPTED_SPANS)

    def forward_committed(self) -> DataFrame:
        """Return :data:`reconcile.spark.schemas.FORWARD_COMMITTED`."""
        rings = self.ring_numbers()
        rows = [
            (number, rings[number].start + lane, offset)
            for number, address in enumerate(self.addresses)
            for lane, offset in enumerate(self.cuts[address.name].forward_committed)
            if lane < rings[number].layout.lanes
        ]
        return small(self.spark, rows, schemas.FORWARD_COMMITTED)

    def rules(self, several: Sequence[Mapping[str, Any]]) -> DataFrame:
        """Return :data:`reconcile.spark.schemas.RULES`, one row for each address."""
        return small(
            self.spark, [[rule[name] for name in schemas.RULES.names] for rule in several], schemas.RULES
        )
