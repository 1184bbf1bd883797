"""Judges one night: evidence, anomalies, counts. What Spark does, in order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.anomalies.finders import originals
from reconcile.anomalies.finders import repeated_ids as repetition
from reconcile.anomalies.names import Anomaly, doubted
from reconcile.page.report_data import FINDINGS_MAX
from reconcile.run.frames import distributions, hops, id_positions, journal, match
from reconcile.run.frames import evidence as ev
from reconcile.run.frames.scope import records
from reconcile.run.frames.workspace import Workspace
from reconcile.run.history import id_store
from reconcile.run.history import rules as kept_rules
from reconcile.run.history.history import Run, added, ids_folder
from reconcile.run.measures import candidates, repeated_ids, resend_distance
from reconcile.run.measures.counts import Judgement, count, count_anomalies
from reconcile.run.verdict import anomaly_search, summary
from reconcile.session.session import FEW
from reconcile.spark.schemas import EVIDENCE, IDS
from reconcile.spark.topic_reader import Ranges, concatenated
from ringfence_kafka.process.step_progress import Progress
from ringfence_kafka.wording import counted

STEPS = (
    "reading and matching",
    "counting",
    "looking for repeated IDs",
    "looking for anomalies",
    "measuring",
    "writing results",
)


@dataclass(slots=True)
class Judge:
    """One night's work."""

    desk: Workspace
    date: str
    progress: Progress
    recent: Sequence[Run] = ()
    """Nights before whose resends the advice rests on."""
    confidence: float = 1.0
    """Share of them that the advised ring would have caught."""

    def judge(
        self,
        base: Run | None,
        chain: list[Run],
        events: DataFrame | None,
        beyond: Ranges,
        complete: Mapping[str, bool],
    ) -> Judgement:
        """Judge everything, and write it below the night's folders; nothing of it counts before the night is committed."""
        found = Judgement()
        self._begin(0)
        events, grown = journal.of_growth(events)
        evidence, followed = match.matched(self.desk, base, events)
        events = journal.of_rings(events)
        self._begin(1, self._extent())
        told = journal.told(events)
        addresses, cuts = self.desk.frames.addresses, self.desk.frames.cuts
        detects = kept_rules.detects(addresses, told, base)
        found.dropping = frozenset(
            detect for detect in detects if not kept_rules.diverts(addresses[detect], base)
        )
        consumed = base.consumed if base else {}
        count(self.desk.frames, evidence, told, consumed, beyond, found)
        self._begin(2, summary.by_address(found.counts))
        started = self._started(chain)
        blocks = self._blocks(evidence, found)
        ids = self._ids(evidence, chain, detects, started, found, blocks)
        others = evidence.where(originals.REPEATING) if found.suspects[candidates.REPEATING] else None
        several_times = repeated_ids.digests(ids, others, self.desk.number)
        many = found.total("input") + sum(run.inputs for run in chain) >= FEW
        met = repeated_ids.looked_for(several_times, self.desk.scratch, many=many)
        those = repeated_ids.among(ids, met.digests, met.number)
        those = self.desk.scratch("recurring_ids", those) if met.number else ids.where(F.lit(False))
        several = self._repeated(those) if met.again else None
        self._begin(3, counted(met.number, "repeated ID"))
        sizes = journal.largest(addresses, told, chain)
        found.largest = {address.name: size for address, size in zip(addresses, sizes, strict=True)}
        rules = self.desk.frames.rules(
            kept_rules.of(addresses, cuts, chain, self.desk.number, sizes, detects, complete)
        )
        doubts = kept_rules.doubts(addresses, cuts, base)
        orphans = anomaly_search.orphans(self.desk, evidence, those, ids, rules, events, grown, found)
        # One after the other: each plan stays small, and each gets all of the memory.
        promised = kept_rules.promised(addresses, cuts, chain)
        followed = anomaly_search.without_lost(self.desk, followed, orphans, found)
        again = anomaly_search.again(self.desk, followed, resend_distance.by_lane(promised))
        frames = anomaly_search.anomalies(
            self.desk,
            evidence,
            ids,
            orphans,
            several,
            events,
            grown,
            rules,
            chain,
            found,
            again,
            promised,
            blocks,
        )
        if found.total("input") < FEW:
            frames = [concatenated(frames)]
        for frame in frames:
            named = self.desk.frames.topics_named(doubted(frame, doubts))
            self.desk.write(named, "anomalies", "append")
        written = self.desk.read("anomalies", named.schema)
        count_anomalies(written, found)
        self._begin(4, counted(found.anomalous, "anomaly", "anomalies"))
        self._resends(
            evidence,
            chain,
            journal.capacities(self.desk.frames.addresses, told, chain),
            started,
            found,
            met,
            those,
            blocks,
        )
        self._measure(evidence, orphans, written, found)
        self._begin(5, counted(found.total("input"), "message"))
        self._hand_on(evidence, found)
        if followed is not None:
            most = distributions.by_address([min(size, hops.KEPT_MAX) for size in sizes])
            self.desk.write(self.desk.frames.named(hops.kept_on(followed, most)), "hops")
        self.progress.count(f"{counted(found.total('waiting'), 'message')} for the next run")
        return found

    def _begin(self, step: int, done: str = "") -> None:
        """``done``: what the step before has done."""
        self.progress.count(done)
        self.progress.begin(STEPS[step])

    def _extent(self) -> str:
        cuts = self.desk.frames.cuts
        return f"{counted(records(cuts), 'offset')} of {counted(len(cuts), 'address', 'addresses')}"

    # -- evidence --------------------------------------------------------------------------------------------------

    def _started(self, chain: list[Run]) -> Column:
        """How many IDs each lane had accepted when the night began."""
        total = added(run.accepted for run in chain)
        return resend_distance.by_lane(
            [total.get(address.name, {}) for address in self.desk.frames.addresses]
        )

    def _blocks(self, evidence: DataFrame, found: Judgement) -> DataFrame | None:
        """:func:`reconcile.run.frames.id_positions.blocks`; None = rows are sorted: there are few, or parts, or too many blocks."""
        if found.total("input") < FEW or found.total("parts"):
            return None
        kept = self.desk.scratch("blocks", id_positions.blocks(evidence))
        return kept if kept.count() <= id_positions.SENT_MAX else None

    def _ids(
        self,
        evidence: DataFrame,
        chain: list[Run],
        detects: set[int],
        started: Column,
        found: Judgement,
        blocks: DataFrame | None,
    ) -> DataFrame:
        tonight = ev.accepted_ids(evidence, self.desk.number).select(*IDS.names)
        path = self.desk.files.at(ids_folder(self.date, self.desk.number))
        count = found.total("accepted") + found.total("parts")
        accepted = narrow(tonight.withColumn("accepted", F.lit(True)), count)
        placed = resend_distance.placed(accepted, started, self._forwarded(found), blocks)
        kept = placed.withColumn("position", F.col("earliest")).select(*IDS.names[:-1])
        first, *others = self.desk.frames.addresses
        if not others and found.accepted[first.name]:  # else all are sorted, to find the folder of each
            only = self.desk.files.at(id_store.folder_of(self.date, self.desk.number, first.name))
            self.desk.frames.named(kept).drop("address").write.mode("overwrite").parquet(only)
        else:
            self.desk.frames.named(kept).write.mode("overwrite").partitionBy("address").parquet(path)
        every = tonight.unionByName(self.desk.frames.ids(chain))
        return every.where(F.col("address").isin(sorted(detects)) if detects else F.lit(False))

    def _repeated(self, ids: DataFrame) -> DataFrame | None:
        """The rows of repeated IDs; None = there are none."""
        several = self.desk.scratch("repeated", repetition.repeated(ids, self.desk.number))
        return None if several.isEmpty() else several

    def _forwarded(self, found: Judgement) -> list[set[int]]:
        """Of each address the lanes to which something was forwarded."""
        lanes = [found.lanes[address.name] for address in self.desk.frames.addresses]
        return [{lane for lane, counts in item.items() if counts.get("forwarded")} for item in lanes]

    # -- resends, and what the page shows ----------------------------------------------------------------------------

    def _resends(
        self,
        evidence: DataFrame,
        chain: list[Run],
        capacities: Sequence[int],
        started: Column,
        found: Judgement,
        met: repeated_ids.RepeatedIds,
        those: DataFrame,
        blocks: DataFrame | None,
    ) -> None:
        """How far apart they are; nothing is done where there can be none."""
        on = [number for number, capacity in enumerate(capacities) if capacity]
        if not on or not met.number:
            return
        ages = [round(address.id_max_age * 1000) for address in self.desk.frames.addresses]
        count = found.total("input") + found.total("parts")
        seen = narrow(resend_distance.seen(evidence, on, found.dropping), count)
        forwarded = self._forwarded(found)
        if blocks is not None and not any(forwarded):  # a place does not depend on what else is looked at
            seen = repeated_ids.among(seen, met.digests, met.number)
        tonight = resend_distance.placed(seen, started, forwarded, blocks)
        before = sum(n for night in chain for lanes in night.accepted.values() for n in lanes.values())
        of_ids = narrow(
            resend_distance.beside(
                repeated_ids.among(tonight, met.digests, met.number),
                those.where(F.col("night") != self.desk.number),
            ),
            count + before,
        )
        by_address = distributions.by_address
        apart = resend_distance.distances(of_ids, by_address(ages), by_address(capacities))
        self.desk.write(self.desk.frames.named(resend_distance.counted(apart)), "resends")

    def _measure(self, evidence: DataFrame, orphans: DataFrame, written: DataFrame, found: Judgement) -> None:
        """Everything that the advice and the page need, in one job; and the anomalies that are named, if there are any."""
        frames = []
        if found.total("input"):
            missing = any(
                anomaly.get(Anomaly.LOST) or found.unknown.get(name)
                for name, anomaly in found.anomalies.items()
            )
            times = [found.times.get(address.name, (0, 0)) for address in self.desk.frames.addresses]
            dropping = resend_distance.among("address", found.dropping)
            evidence = narrow(evidence, found.total("input") + found.total("parts"))
            frames += [
                distributions.moments(evidence, orphans if missing else None, times, dropping),
                distributions.groups(evidence),
            ]
            if missing:
                frames.append(distributions.orphaned(orphans))
        seen = self.desk.frames.resends(self.recent, self.desk.number)
        if seen is not None:
            seen = narrow(seen, found.total("input") + sum(run.inputs for run in self.recent))
            frames += [
                distributions.ring(seen, self.confidence),
                distributions.ring_by_lane(seen),
                distributions.bins(seen),
            ]
        if frames:
            found.numbers = concatenated(frames).collect()
        if found.anomalous:
            found.findings = distributions.first_of(written, FINDINGS_MAX).collect()

    # -- for the next night ----------------------------------------------------------------------------------------

    def _hand_on(self, evidence: DataFrame, found: Judgement) -> None:
        if found.total("waiting"):
            self.desk.write(self.desk.frames.named(ev.carried_inputs(evidence)), "inputs")
        if not found.suspects[candidates.ALONE]:
            return
        ahead = ev.ahead(evidence, self.desk.frames.spans()).select(*EVIDENCE.names)
        if not ahead.isEmpty():
            self.desk.write(self.desk.frames.named(ahead), "ahead")


def narrow(frame: DataFrame, rows: int) -> DataFrame:
    """Few rows are sooner done in one task than handed from one to the next; ``rows`` is how many there can be."""
    return frame.coalesce(1) if rows < FEW else frame
