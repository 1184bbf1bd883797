"""The frames of a night: what its cut covers, and what the last night has handed on."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from reconcile.run.frames.evidence import carried_forwards, carried_outputs
from reconcile.run.frames.sources import AWAY, Sources
from reconcile.run.history import id_store
from reconcile.run.history.history import ACCEPTED as ACCEPTED_IDS
from reconcile.run.history.history import Run, results_folder
from reconcile.run.history.rules import Rule, diverts
from reconcile.spark import topic_reader
from reconcile.spark.files import Files
from reconcile.spark.schemas import (
    ACCEPTED,
    ACCEPTED_SPANS,
    ADDRESSES,
    ANOMALIES,
    DIVERTED,
    EVIDENCE,
    FORWARD_COMMITTED,
    FORWARDS,
    GAPS,
    HOPS,
    IDS,
    INPUTS,
    INT,
    LONG,
    OUTPUTS,
    RESENDS,
    RULES,
    SPANS,
)
from reconcile.spark.small_frames import small


@dataclass(slots=True)
class Frames(Sources):
    """Makes them."""

    files: Files
    base: Run | None = None
    """The night that this one goes on from."""

    # -- of the night ---------------------------------------------------------------------------------------------------

    def inputs(self, base: Run | None) -> DataFrame:
        """What came in, and what waited last night; with lane and forward offset, where they are known."""
        unknown = {"lane": F.lit(None).cast(INT), "forward_offset": F.lit(None).cast(LONG)}
        schema = StructType([*INPUTS.fields, *FORWARDS.fields[-2:]])
        came = [data_frame.withColumns(unknown) for data_frame in self.came_in()]
        return self._all([*came, *self._carried(base, "inputs", schema)], schema)

    def forwards(self, ahead: DataFrame | None) -> DataFrame | None:
        """What was forwarded; None = nothing."""
        frames = [*self.came_between(), *([] if ahead is None else [carried_forwards(ahead)])]
        return topic_reader.concatenated(frames) if frames else None

    def outputs(self, ahead: DataFrame | None) -> DataFrame:
        """What came out, and what last night saw of inputs beyond its cut."""
        # Of an address that is away nobody judges what its transactions brought.
        came = [
            self._not_judged_without(data_frame).where(F.col("address") != AWAY)
            for data_frame in self.came_out()
        ]
        return self._all([*came, *([] if ahead is None else [carried_outputs(ahead)])], OUTPUTS)

    def away(self, address: str) -> list[str]:
        """Inputs of addresses that nights before knew, and that had transactions with parts for this one."""
        configured = {address.name for address in self.addresses}
        return [
            str(rule["input_topic"])
            for name, rule in (self.base.rules.items() if self.base else ())
            if name not in configured and address in rule.get("transaction_addresses", ())
        ]

    def _not_judged_without(self, outputs: DataFrame) -> DataFrame:
        """Without diverted duplicates that were judged when they needed no output, as they were said to be dropped."""
        numbers = [
            number
            for number, address in enumerate(self.addresses)
            if address.duplicates == "divert" and not diverts(address, self.base)
        ]
        if not numbers:
            return outputs
        begins = self.spans().where(F.col("address").isin(numbers)).select("address", "partition", "begin")
        known = outputs.join(F.broadcast(begins), on=["address", "partition"], how="left")
        judged = (F.col("fate") == DIVERTED) & (F.col("offset") < F.col("begin"))
        return known.where(~F.coalesce(judged, F.lit(False))).select(*OUTPUTS.names)

    def _all(self, frames: Sequence[DataFrame], schema: StructType) -> DataFrame:
        return topic_reader.concatenated(frames) if frames else small(self.spark, [], schema)

    # -- from the night before, and for the next ----------------------------------------------------------------------

    def ahead(self, base: Run | None) -> DataFrame | None:
        """What last night saw of inputs beyond its cut."""
        carried = self._carried(base, "ahead", EVIDENCE)
        return topic_reader.concatenated(carried) if carried else None

    def hops(self, base: Run | None) -> DataFrame | None:
        """:data:`reconcile.spark.schemas.HOPS` that the last night has kept; None = there are none.

        A lane keeps them where its input is another one now. There, what was in the old one stands before all of it.
        """
        carried = self._carried(
            base, "hops", HOPS, self._left(base, [address.name for address in self.addresses])
        )
        if not carried:
            return None
        same = self._same()
        another = [n for n, address in enumerate(self.addresses) if address.name not in same]
        gone = F.col("address").isin(another) if another else F.lit(False)
        return topic_reader.concatenated(carried).withColumn(
            "offset", F.when(gone, F.lit(-1)).otherwise(F.col("offset")).cast(LONG)
        )

    def carries(self, base: Run | None) -> bool:
        """Whether something was handed on."""
        return any(
            {"inputs", "ahead"} & set(self.files.names(results_folder(number))) for number in self.left(base)
        )

    def left(self, base: Run | None) -> dict[int, set[str]]:
        """Night → addresses that it has left something for: the night before, or the last that had them."""
        return self._left(base, self._same())

    @staticmethod
    def _left(base: Run | None, names: Collection[str]) -> dict[int, set[str]]:
        nights: dict[int, set[str]] = {}
        if base is None:
            return nights
        for name in names:
            nights.setdefault(base.left_by(name), set()).add(name)
        return nights

    def _carried(
        self, base: Run | None, name: str, schema: StructType, left: dict[int, set[str]] | None = None
    ) -> list[DataFrame]:
        kept = [
            self._numbered(self._parquet(schema, self.files.at(results_folder(number), name)), names)
            for number, names in sorted((self.left(base) if left is None else left).items())
            if name in self.files.names(results_folder(number))
        ]
        return [self._forwards_anew(data_frame) for data_frame in kept]

    def _forwards_anew(self, kept: DataFrame) -> DataFrame:
        """Where the forward topic is another one now, what was in the old one stands before all of it."""
        another = [n for n, address in enumerate(self.addresses) if self.cuts[address.name].forward.recreated]
        if not another:
            return kept
        gone = F.col("address").isin(another) & F.col("forward_offset").isNotNull()
        return kept.withColumn("forward_offset", F.when(gone, F.lit(-1)).otherwise(F.col("forward_offset")))

    def ids(self, chain: Sequence[Run]) -> DataFrame:
        """:data:`reconcile.spark.schemas.IDS` of earlier nights that judged the same topics."""
        there = id_store.kept(self.files)
        same = [address for address in self.addresses if address.name in self._same()]
        folders, numbers = [], self.numbers()
        for night in chain:
            if night.number not in there:
                continue
            names = {
                address_settings.name
                for address_settings in same
                if not night.judged_another(self.cuts[address_settings.name].input)
            }
            folders += [
                id_store.address_folder(night, name)
                for name in there[night.number]
                if name in numbers and self.addresses[numbers[name]].name in names
            ]
        if not folders:
            return small(self.spark, [], IDS)
        paths = [self.files.at(folder) for folder in folders]
        rows = self._parquet(IDS, *paths, base=self.files.at(ACCEPTED_IDS))
        return self._numbered(rows, {address_settings.name for address_settings in same}).select(*IDS.names)

    def resends(self, nights: Sequence[Run], tonight: int) -> DataFrame | None:
        """:data:`reconcile.spark.schemas.RESENDS` of tonight, and of nights before that judged the same topics; None = there were none.

        Where the ring is off now, nothing is asked of it, whatever it saw while it was on.
        """
        on = {address.name for address in self.addresses if address.id_cache_size}
        kept = [
            (night.number, {name for name in on if night.judged(self.cuts[name].input)}) for night in nights
        ]
        frames = [
            self._numbered(self._parquet(RESENDS, self.files.at(results_folder(number), "resends")), names)
            for number, names in [*kept, (tonight, on)]
            if "resends" in self.files.names(results_folder(number))
        ]
        return topic_reader.concatenated(frames) if frames else None

    def _parquet(self, schema: StructType, *paths: str, base: str = "") -> DataFrame:
        """Kept rows; ``base``: the folder below which names of folders are columns."""
        named = StructType(
            [
                StructField(
                    struct_field.name,
                    StringType() if struct_field.name in ADDRESSES else struct_field.dataType,
                )
                for struct_field in schema
            ]
        )
        reader = self.spark.read.schema(named)
        return (reader.option("basePath", base) if base else reader).parquet(*paths)

    def _same(self) -> set[str]:
        """Addresses whose input did not become another topic since the last night."""
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
        """Replace names by numbers; leave out all but these, and what is no longer configured."""
        numbers = self.numbers()
        every = {name: F.lit(n) for name, n in numbers.items()}
        own = {name: F.lit(n) for name, n in numbers.items() if self.addresses[n].name in names}
        number = self._by_name(own, F.col("address")) if own else F.lit(None).cast(INT)
        others = {
            column: self._by_name(every, F.col(column)) for column in kept.columns if column in ADDRESSES
        }
        return kept.withColumns({**others, "address": number}).where("address is not null")

    def named(self, frame: DataFrame) -> DataFrame:
        """Numbers become names: configurations change."""
        names = F.array(*(F.lit(address.name) for address in self.addresses))
        return frame.withColumns(
            {column: F.get(names, F.col(column)) for column in frame.columns if column in ADDRESSES}
        )

    def topics_named(self, anomalies: DataFrame) -> DataFrame:
        """Anomalies with the names of all topics that they are about."""
        fate = F.coalesce("fate", F.when(F.col("out_offset").isNotNull(), F.lit(ACCEPTED)))
        inputs = F.array(*(F.lit(address.input_topic) for address in self.addresses))
        outputs = [
            F.array(*(F.lit(getattr(address, topic)) for address in self.addresses))
            for topic in ("accepted_topic", "duplicates_topic", "quarantine_topic")
        ]
        out = F.coalesce(
            "out_topic",
            *(
                F.when(fate == n, F.get(output, F.coalesce("out_address", "address")))
                for n, output in enumerate(outputs, 1)
            ),
        )
        columns = [
            name
            for name in ANOMALIES.names
            if name not in {"fate", "out_address", "out_topic", "anomaly", "address"}
        ]
        at = columns.index("out_partition")
        named = anomalies.withColumns({"out_topic": out, "topic": F.get(inputs, F.col("address"))})
        return self.named(named).select(
            "anomaly", "address", "topic", *columns[:at], "out_topic", *columns[at:]
        )

    # -- small ones ----------------------------------------------------------------------------------------------------

    def gaps(self) -> DataFrame:
        """:data:`reconcile.spark.schemas.GAPS`: evidence that is gone, a row a stretch of a partition."""
        found = [
            (number, item.partition, item.begin, None, None, None, item.text)
            if item.topic == address.input_topic
            else (number, None, None, item.topic, item.partition, item.begin, item.text)
            for number, address in enumerate(self.addresses)
            for item in self.cuts[address.name].lost
        ]
        return small(self.spark, found, GAPS)

    def spans(self) -> DataFrame:
        """:data:`reconcile.spark.schemas.SPANS`."""
        rows = [
            (number, partition, *span)
            for number, address in enumerate(self.addresses)
            for partition, span in enumerate(self.cuts[address.name].input.spans)
        ]
        return small(self.spark, rows, SPANS)

    def accepted_spans(self) -> DataFrame:
        """:data:`reconcile.spark.schemas.ACCEPTED_SPANS`, of topics that were not created again."""
        rows = [
            (number, partition, span.begin)
            for number, address in enumerate(self.addresses)
            if not self.cuts[address.name].accepted.recreated
            for partition, span in enumerate(self.cuts[address.name].accepted.spans)
        ]
        return small(self.spark, rows, ACCEPTED_SPANS)

    def forward_committed(self) -> DataFrame:
        """:data:`reconcile.spark.schemas.FORWARD_COMMITTED`."""
        rows = [
            (number, lane, offset)
            for number, address in enumerate(self.addresses)
            for lane, offset in enumerate(self.cuts[address.name].forward_committed)
        ]
        return small(self.spark, rows, FORWARD_COMMITTED)

    def rules(self, several: Sequence[Rule]) -> DataFrame:
        """:data:`reconcile.spark.schemas.RULES`, of each address one."""
        return small(self.spark, [(number, *item) for number, item in enumerate(several)], RULES)
