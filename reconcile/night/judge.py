"""Judges one night: evidence, anomalies, counts. What Spark does, in order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from reconcile.anomalies import bridged, fates, lost, order, originals, repeated, torn
from reconcile.anomalies.name import Anomaly, doubted, rows
from reconcile.night import counting, distributions, hops, journal, resends, units
from reconcile.night import evidence as ev
from reconcile.night import rules as kept_rules
from reconcile.night.counting import Judgement
from reconcile.night.evidence import FIRST
from reconcile.night.frames import Frames
from reconcile.night.nights import SCRATCH, Night, added, ids_folder, results_folder
from reconcile.page.figures import FINDINGS_MAX
from reconcile.spark.files import Files
from reconcile.spark.read import Ranges, concatenated
from reconcile.spark.schemas import DIVERTED, EVIDENCE, GAPS, IDS
from reconcile.spark.session import FEW
from reconcile.spark.small import small

Say = Callable[[str], None]
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

    spark: SparkSession
    files: Files
    frames: Frames
    number: int
    date: str
    say: Say
    recent: Sequence[Night] = ()
    """Nights before whose resends the advice rests on."""
    confidence: float = 1.0
    """Share of them that the advised ring would have caught."""

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
        events, grown = journal.of_growth(events)
        evidence, followed = self._with_hops(self._evidence(base), base, events)
        events = journal.of_rings(events)
        self.say(STEPS[1])
        told = journal.told(events)
        addresses, cuts = self.frames.addresses, self.frames.cuts
        detects = kept_rules.detects(addresses, told, base)
        found.dropping = frozenset(each for each in detects if not kept_rules.diverts(addresses[each], base))
        consumed = base.consumed if base else {}
        counting.count(self.frames, evidence, told, consumed, beyond, found)
        self.say(STEPS[2])
        started = self._started(chain)
        ids = self._ids(evidence, chain, detects, started, found)
        several = self._repeated(ids)
        self.say(STEPS[3])
        sizes = journal.largest(addresses, told, chain)
        rules = self.frames.rules(kept_rules.of(addresses, cuts, base, self.number, sizes, detects, complete))
        doubts = kept_rules.doubts(addresses, cuts, base)
        orphans = self._orphans(evidence, ids, rules, events, grown)
        # One after the other: each plan stays small, and each gets all of the memory.
        promised = resends.by_lane(kept_rules.promised(addresses, cuts, chain))
        again = self._again(followed, promised)
        for each in self._anomalies(
            evidence, ids, orphans, several, events, rules, chain, found, again, promised
        ):
            self._write(self.frames.topics_named(doubted(each, doubts)), "anomalies", "append")
        counting.count_anomalies(self._read("anomalies"), found)
        self.say(STEPS[4])
        self._resends(
            evidence, chain, journal.capacities(self.frames.addresses, told, chain), started, found, several
        )
        self._measure(evidence, orphans, found)
        self.say(STEPS[5])
        self._hand_on(evidence, found)
        if followed is not None:
            most = distributions.by_address([min(each, hops.KEPT_MAX) for each in sizes])
            self._write(self.frames.named(hops.kept_on(followed, most)), "hops")
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
        return self._with_units(self._scratch("evidence", matched))

    def _with_units(self, matched: DataFrame) -> DataFrame:
        """The evidence, in which envelopes and their parts know of one another; where there are none it is as it was matched."""
        envelopes = matched.where(units.OF_UNITS)
        if envelopes.isEmpty():
            return matched
        joined = self._scratch("units", units.joined(envelopes).unionByName(units.as_plain(matched)))
        return matched.where(f"not ({units.OF_UNITS})").unionByName(joined)

    def _with_hops(
        self, evidence: DataFrame, base: Night | None, events: DataFrame | None
    ) -> tuple[DataFrame, DataFrame | None]:
        """The evidence, in which what came over bridges is told apart by what its lane knew of hops; and that, where there are any."""
        bridged_ones = evidence.where(hops.OF_HOPS)
        kept = self.frames.hops(base)
        if kept is None and bridged_ones.isEmpty():
            return evidence, None
        followed = self._scratch("hops", hops.followed(bridged_ones, kept, events))
        others = evidence.where(~F.coalesce(F.expr(hops.OF_HOPS), F.lit(False)))
        return others.unionByName(hops.evidence_of(followed)), followed

    def _scratch(self, name: str, frame: DataFrame) -> DataFrame:
        path = self.files.at(SCRATCH, name)
        frame.write.mode("overwrite").parquet(path)
        return self.spark.read.schema(frame.schema).parquet(path)

    def _started(self, chain: list[Night]) -> Column:
        """How many IDs each lane had accepted when the night began."""
        total = added(each.accepted for each in chain)
        return resends.by_lane([total.get(each.name, {}) for each in self.frames.addresses])

    def _ids(
        self, evidence: DataFrame, chain: list[Night], detects: set[int], started: Column, found: Judgement
    ) -> DataFrame:
        tonight = ev.accepted_ids(evidence, self.number).select(*IDS.names)
        path = self.files.at(ids_folder(self.date, self.number))
        count = found.total("accepted") + found.total("parts")
        accepted = narrow(tonight.withColumn("accepted", F.lit(True)), count)
        placed = resends.placed(accepted, started, self._forwarded(found))
        kept = placed.withColumn("position", F.col("earliest")).select(*IDS.names[:-1])
        self.frames.named(kept).write.mode("overwrite").partitionBy("address").parquet(path)
        every = tonight.unionByName(self.frames.ids(chain))
        return every.where(F.col("address").isin(sorted(detects)) if detects else F.lit(False))

    def _repeated(self, ids: DataFrame) -> DataFrame | None:
        """The rows of repeated IDs; None = there are none."""
        several = self._scratch("repeated", repeated.repeated(ids, self.number))
        return None if several.isEmpty() else several

    def _forwarded(self, found: Judgement) -> list[set[int]]:
        """Of each address the lanes to which something was forwarded."""
        lanes = [found.lanes[each.name] for each in self.frames.addresses]
        return [{lane for lane, counts in each.items() if counts.get("forwarded")} for each in lanes]

    # -- anomalies -------------------------------------------------------------------------------------------------

    def _orphans(
        self,
        evidence: DataFrame,
        ids: DataFrame,
        rules: DataFrame,
        events: DataFrame | None,
        grown: DataFrame | None,
    ) -> DataFrame:
        """What is not accepted, and a duplicate of nothing."""
        candidates = evidence.where(
            f"{FIRST} and id is not null and not resent and ((whole is null and not waiting) or whole = {DIVERTED})"
        )
        found = originals.without_original(
            candidates, originals.with_heirs(ids, grown), rules, events, self.number
        )
        found = self._scratch("without_original", found)
        if found.isEmpty():
            return found.select(*EVIDENCE.names)
        orphans = originals.orphans(found, originals.with_heirs(ids, grown), events, self.number).select(
            *EVIDENCE.names
        )
        return self._scratch("orphans", originals.of_units(orphans))

    def _anomalies(
        self,
        evidence: DataFrame,
        ids: DataFrame,
        orphans: DataFrame,
        several: DataFrame | None,
        events: DataFrame | None,
        rules: DataFrame,
        chain: list[Night],
        found: Judgement,
        again: DataFrame | None,
        promised: Column,
    ) -> list[DataFrame]:
        spans = self.frames.spans()
        missing = lost.unmatched(evidence)
        looked_at = [
            self._gaps(),
            fates.doubled(evidence),
            fates.doubled_later(evidence, spans),
            fates.phantom(evidence, spans),
            fates.beyond_memory(evidence, spans),
            fates.corrupted(evidence),
            bridged.unread(evidence),
        ]
        transactions = found.total("parts") > 0
        if transactions:
            topics = [each.accepted_topic for each in self.frames.addresses]
            looked_at.append(torn.torn(evidence, rules, topics))
        frames = [
            concatenated(looked_at),
            concatenated([lost.lost(missing, orphans, rules), lost.wrong_verdict(orphans, evidence, rules)]),
            order.reordered(evidence, transactions=transactions),
        ]
        base = chain[0] if chain else None
        if self.frames.carries(base):
            left = self.frames.left(base)
            last = self.frames.ids([night for night in chain if night.number in left])
            frames.append(order.reordered_across(evidence, last, spans, self.frames.accepted_spans()))
        if several is not None:
            pairs = repeated.pairs(several, self.number)
            ranked = repeated.ranks(ids, pairs.select("address", "lane").distinct())
            between = repeated.between(pairs, ranked)
            judged = repeated.promised(between, events, rules, promised)
            inputs = [each.input_topic for each in self.frames.addresses]
            by_id = [repeated.remembered(judged), repeated.cross_lane(several, self.number, rules, inputs)]
            frames += by_id if again is None else [bridged.others(each, again) for each in by_id]
        return frames if again is None else [again, *frames]

    def _again(self, followed: DataFrame | None, promised: Column) -> DataFrame | None:
        """What is wrong with hops that were accepted again; None = nothing."""
        if followed is None:
            return None
        again = self._scratch("hops_again", bridged.again(followed, promised))
        if again.isEmpty():
            return None
        found = [bridged.forgotten(again, followed), bridged.apart(again, followed)]
        return self._scratch("hops_found", concatenated(found))

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

    # -- resends, and what the page shows ----------------------------------------------------------------------------

    def _resends(
        self,
        evidence: DataFrame,
        chain: list[Night],
        capacities: Sequence[int],
        started: Column,
        found: Judgement,
        several: DataFrame | None,
    ) -> None:
        """How far apart they are; nothing is done where there can be none."""
        repeating = found.total("diverted") + found.total("dropped")
        repeating += found.total("parts") if repeating else 0  # of what is ignored all IDs are looked at
        repeating += 0 if several is None else several.count()
        on = [number for number, each in enumerate(capacities) if each]
        if not on or not repeating:
            return
        ages = [round(each.id_max_age * 1000) for each in self.frames.addresses]
        count = found.total("input") + found.total("parts")
        seen = narrow(resends.seen(evidence, on, found.dropping), count)
        tonight = resends.placed(seen, started, self._forwarded(found))
        before = sum(n for night in chain for lanes in night.accepted.values() for n in lanes.values())
        of_ids = narrow(
            resends.chosen(
                resends.beside(tonight, self.frames.ids(chain)), resends.repeating(seen, several), repeating
            ),
            count + before,
        )
        by_address = distributions.by_address
        apart = resends.distances(of_ids, by_address(ages), by_address(capacities))
        self._write(self.frames.named(resends.counted(apart)), "resends")

    def _measure(self, evidence: DataFrame, orphans: DataFrame, found: Judgement) -> None:
        """Everything that the advice and the page need, in one job; and the anomalies that are named, if there are any."""
        frames = []
        if found.total("input"):
            missing = any(each.get(Anomaly.LOST) or each.get("UNKNOWN") for each in found.anomalies.values())
            times = [found.times.get(each.name, (0, 0)) for each in self.frames.addresses]
            dropping = resends.among("address", found.dropping)
            evidence = narrow(evidence, found.total("input") + found.total("parts"))
            frames += [
                distributions.moments(evidence, orphans if missing else None, times, dropping),
                distributions.groups(evidence),
            ]
            if missing:
                frames.append(distributions.orphaned(orphans))
        seen = self.frames.resends(self.recent, self.number)
        if seen is not None:
            seen = narrow(seen, found.total("input") + sum(each.inputs for each in self.recent))
            frames += [
                distributions.ring(seen, self.confidence),
                distributions.ring_by_lane(seen),
                distributions.bins(seen),
            ]
        if frames:
            found.numbers = concatenated(frames).collect()
        if any(count for each in found.anomalies.values() for count in each.values()):
            found.findings = distributions.first_of(self._read("anomalies"), FINDINGS_MAX).collect()

    # -- for the next night ----------------------------------------------------------------------------------------

    def _hand_on(self, evidence: DataFrame, found: Judgement) -> None:
        if found.total("waiting"):
            self._write(self.frames.named(ev.carried_inputs(evidence)), "inputs")
        ahead = ev.ahead(evidence, self.frames.spans()).select(*EVIDENCE.names)
        if not ahead.isEmpty():
            self._write(self.frames.named(ahead), "ahead")

    def _write(self, frame: DataFrame, name: str, mode: str = "overwrite") -> None:
        frame.write.mode(mode).parquet(self.files.at(results_folder(self.number), name))

    def _read(self, name: str) -> DataFrame:
        return self.spark.read.parquet(self.files.at(results_folder(self.number), name))


def narrow(frame: DataFrame, rows: int) -> DataFrame:
    """Few rows are sooner done in one task than handed from one to the next; ``rows`` is how many there can be."""
    return frame.coalesce(1) if rows < FEW else frame
