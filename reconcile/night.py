"""Judges one night: evidence, anomalies, counts. What Spark does, in order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from reconcile import evidence as ev
from reconcile.anomalies import fates, lost, order, repeated, torn
from reconcile.anomalies.name import Anomaly, rows
from reconcile.files import Files
from reconcile.frames import Frames
from reconcile.nights import SCRATCH, LaneCounts, Night, ids_folder, results_folder
from reconcile.read import Ranges, concatenated
from reconcile.schemas import ACCEPTED, DIVERTED, EVIDENCE, GAPS, IDS, QUARANTINED
from reconcile.small import small

Say = Callable[[str], None]
STEPS = (
    "reading and matching",
    "counting",
    "looking for repeated IDs",
    "looking for anomalies",
    "writing results",
)


@dataclass(slots=True)
class Judgement:
    """What was found."""

    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Address → what was counted."""
    anomalies: dict[str, dict[str, int]] = field(default_factory=dict)
    """Address → name → how many."""
    accepted: LaneCounts = field(default_factory=dict)
    """IDs that were accepted, by lane."""


@dataclass(slots=True)
class Judge:
    """One night's work."""

    spark: SparkSession
    files: Files
    frames: Frames
    number: int
    date: str
    say: Say

    def judge(
        self,
        base: Night | None,
        chain: list[Night],
        events: DataFrame | None,
        beyond: Ranges,
        complete: Mapping[str, bool],
    ) -> Judgement:
        """Judge everything, and write it below the night's folders; nothing of it counts before the night is committed."""
        found = Judgement()
        self.say(STEPS[0])
        evidence = self._evidence(base)
        self.say(STEPS[1])
        detects = self._detects(events)
        self._count(evidence, beyond, found)
        self.say(STEPS[2])
        ids = self._ids(evidence, chain, detects)
        several = self._repeated(ids)
        self.say(STEPS[3])
        rules = self.frames.rules(detects, complete)
        # One after the other: each plan stays small, and each gets all of the memory.
        for each in self._anomalies(evidence, ids, several, events, rules, found):
            self._write(self.frames.topics_named(each), "anomalies", "append")
        self._count_anomalies(found)
        self.say(STEPS[4])
        self._hand_on(evidence, found)
        return found

    # -- evidence --------------------------------------------------------------------------------------------------

    def _evidence(self, base: Night | None) -> DataFrame:
        """Matched once, kept in files: what is judged later reads the columns that it needs."""
        ahead = self.frames.ahead(base)
        matched = ev.attribute(
            self.frames.inputs(base),
            self.frames.forwards(ahead),
            self.frames.outputs(ahead),
            self.frames.forward_committed(),
        )
        return self._scratch("evidence", matched)

    def _scratch(self, name: str, frame: DataFrame) -> DataFrame:
        path = self.files.at(SCRATCH, name)
        frame.write.mode("overwrite").parquet(path)
        return self.spark.read.schema(frame.schema).parquet(path)

    def _ids(self, evidence: DataFrame, chain: list[Night], detects: set[int]) -> DataFrame:
        tonight = ev.accepted_ids(evidence, self.number).select(*IDS.names)
        path = self.files.at(ids_folder(self.date, self.number))
        self.frames.named(tonight.drop("night")).write.mode("overwrite").parquet(path)
        every = tonight.unionByName(self.frames.ids(chain))
        return every.where(F.col("address").isin(sorted(detects)) if detects else F.lit(False))

    def _repeated(self, ids: DataFrame) -> DataFrame | None:
        """The rows of repeated IDs; None = there are none."""
        several = self._scratch("repeated", repeated.repeated(ids, self.number))
        return None if several.isEmpty() else several

    def _detects(self, events: DataFrame | None) -> set[int]:
        """Addresses whose rings were on, now or at some time."""
        found = {number for number, each in enumerate(self.frames.addresses) if each.id_cache_size}
        if events is not None:
            found |= {each["address"] for each in events.select("address").distinct().collect()}
        return found

    # -- anomalies -------------------------------------------------------------------------------------------------

    def _anomalies(
        self,
        evidence: DataFrame,
        ids: DataFrame,
        several: DataFrame | None,
        events: DataFrame | None,
        rules: DataFrame,
        found: Judgement,
    ) -> list[DataFrame]:
        spans = self.frames.spans()
        missing = lost.unmatched(evidence)
        candidates = evidence.where(
            f"has_input and id is not null and ((fate is null and not waiting) or (fate = {DIVERTED} and nth = 1))"
        )
        orphans = self._scratch("orphans", lost.without_original(candidates, ids, rules))
        looked_at = [
            self._gaps(),
            fates.doubled(evidence),
            fates.doubled_later(evidence, spans),
            fates.phantom(evidence, spans),
            fates.beyond_memory(evidence, spans),
            fates.corrupted(evidence),
        ]
        excused = None
        if any(each.get("parts") for each in found.counts.values()):
            parts = torn.parts(evidence)
            transactions = torn.transactions(parts)
            excused = torn.excused(parts, transactions, orphans)
            looked_at.append(torn.torn(transactions))
        frames = [
            concatenated(looked_at),
            concatenated(
                [lost.lost(missing, orphans, rules, excused), lost.wrong_verdict(orphans, rules, excused)]
            ),
            order.reordered(evidence),
        ]
        if several is not None:
            pairs = repeated.pairs(several, self.number)
            ranked = repeated.ranks(ids, pairs.select("address", "lane").distinct())
            judged = repeated.promised(repeated.between(pairs, ranked), events, rules)
            frames += [repeated.remembered(judged), repeated.cross_lane(several, self.number)]
        return frames

    def _gaps(self) -> DataFrame:
        """Evidence that is gone, a row a stretch of a partition."""
        found = [
            (
                number,
                each.topic,
                each.partition,
                each.begin,
                f"offsets {each.begin} to {each.end}: {each.why}",
            )
            for number, address in enumerate(self.frames.addresses)
            for each in self.frames.cuts[address.name].lost
        ]
        return rows(small(self.spark, found, GAPS), Anomaly.GAP, F.col("text"))

    # -- counts ----------------------------------------------------------------------------------------------------

    def _count(self, evidence: DataFrame, beyond: Ranges, found: Judgement) -> None:
        once = F.col("has_input") & (F.col("nth").isNull() | (F.col("nth") == 1))
        capacities = F.array(*(F.lit(each.id_cache_size) for each in self.frames.addresses))
        accepted = once & (F.col("fate") == ACCEPTED)
        counted = {
            "input": once,
            "accepted": accepted,
            "diverted": once & (F.col("fate") == DIVERTED),
            "quarantined": once & (F.col("fate") == QUARANTINED),
            "unchecked": accepted & (F.col("id").isNull() | (F.get(capacities, F.col("address")) == 0)),
            "forwarded": once & F.col("forward_offset").isNotNull(),
            "waiting": once & F.col("waiting"),
            "unmatched": once & F.col("fate").isNull() & ~F.col("waiting"),
            "parts": once & F.col("transaction").isNotNull(),
        }
        lanes = evidence.groupBy("address", "lane").agg(
            *(F.count_if(each).alias(name) for name, each in counted.items()),
            F.count_if(accepted & F.col("id").isNotNull()).alias("ids"),
        )
        names = [each.name for each in self.frames.addresses]
        found.counts = {name: dict.fromkeys([*counted, "backlog"], 0) for name in names}
        found.accepted = {name: {} for name in names}
        for row in lanes.collect():  # a row a lane
            name = names[row["address"]]
            for each in counted:
                found.counts[name][each] += row[each]
            if row["ids"]:
                found.accepted[name][row["lane"]] = row["ids"]
        backlog = self.frames.backlog(beyond)
        if backlog is not None:
            for row in backlog.groupBy("address").count().collect():
                found.counts[names[row["address"]]]["backlog"] = row["count"]

    def _count_anomalies(self, found: Judgement) -> None:
        written = self.spark.read.parquet(self.files.at(results_folder(self.number), "anomalies"))
        unknown = F.count_if((F.col("anomaly") == "GAP") & F.col("detail").startswith("LOST or not"))
        found.anomalies = {each.name: {} for each in self.frames.addresses}
        for row in (
            written.groupBy("address", "anomaly")
            .agg(F.count(F.lit(1)).alias("n"), unknown.alias("unknown"))
            .collect()
        ):
            counts = found.anomalies[row["address"]]
            counts[row["anomaly"]] = row["n"]
            counts["UNKNOWN"] = counts.get("UNKNOWN", 0) + row["unknown"]

    # -- for the next night ----------------------------------------------------------------------------------------

    def _hand_on(self, evidence: DataFrame, found: Judgement) -> None:
        if any(each["waiting"] for each in found.counts.values()):
            self._write(self.frames.named(ev.carried_inputs(evidence)), "inputs")
        ahead = ev.ahead(evidence, self.frames.spans()).select(*EVIDENCE.names)
        if not ahead.isEmpty():
            self._write(self.frames.named(ahead), "ahead")

    def _write(self, frame: DataFrame, name: str, mode: str = "overwrite") -> None:
        frame.write.mode(mode).parquet(self.files.at(results_folder(self.number), name))
