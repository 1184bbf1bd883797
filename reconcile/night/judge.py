"""Judges one night: evidence, anomalies, counts. What Spark does, in order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StructType

from reconcile.anomalies import bridged, fates, lost, order, originals, repeated, torn
from reconcile.anomalies.name import Anomaly, doubted, rows
from reconcile.night import (
    counting,
    distributions,
    hops,
    journal,
    kept_ids,
    places,
    recurring,
    resends,
    suspects,
    units,
)
from reconcile.night import evidence as ev
from reconcile.night import rules as kept_rules
from reconcile.night.counting import Judgement
from reconcile.night.frames import Frames
from reconcile.night.nights import SCRATCH, Night, added, ids_folder, results_folder
from reconcile.page.figures import FINDINGS_MAX
from reconcile.spark.files import Files
from reconcile.spark.read import Ranges, concatenated
from reconcile.spark.schemas import EVIDENCE, IDS
from reconcile.spark.session import FEW

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
        evidence, followed = self._evidence(base, events)
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
        blocks = self._blocks(evidence, found)
        ids = self._ids(evidence, chain, detects, started, found, blocks)
        others = evidence.where(originals.REPEATING) if found.suspects[suspects.REPEATING] else None
        several_times = recurring.digests(ids, others, self.number)
        many = found.total("input") + sum(each.inputs for each in chain) >= FEW
        met = recurring.looked_for(several_times, self._scratch, many=many)
        those = recurring.among(ids, met.digests, met.number)
        those = self._scratch("recurring_ids", those) if met.number else ids.where(F.lit(False))
        several = self._repeated(those) if met.again else None
        self.say(STEPS[3])
        sizes = journal.largest(addresses, told, chain)
        rules = self.frames.rules(kept_rules.of(addresses, cuts, base, self.number, sizes, detects, complete))
        doubts = kept_rules.doubts(addresses, cuts, base)
        orphans = self._orphans(evidence, those, ids, rules, events, grown, found)
        # One after the other: each plan stays small, and each gets all of the memory.
        promised = resends.by_lane(kept_rules.promised(addresses, cuts, chain))
        again = self._again(followed, promised)
        frames = self._anomalies(
            evidence, ids, orphans, several, events, rules, chain, found, again, promised, blocks
        )
        if found.total("input") < FEW:
            frames = [concatenated(frames)]
        for each in frames:
            named = self.frames.topics_named(doubted(each, doubts))
            self._write(named, "anomalies", "append")
        written = self._read("anomalies", named.schema)
        counting.count_anomalies(written, found)
        self.say(STEPS[4])
        self._resends(
            evidence,
            chain,
            journal.capacities(self.frames.addresses, told, chain),
            started,
            found,
            met,
            those,
            blocks,
        )
        self._measure(evidence, orphans, written, found)
        self.say(STEPS[5])
        self._hand_on(evidence, found)
        if followed is not None:
            most = distributions.by_address([min(each, hops.KEPT_MAX) for each in sizes])
            self._write(self.frames.named(hops.kept_on(followed, most)), "hops")
        return found

    # -- evidence --------------------------------------------------------------------------------------------------

    def _evidence(self, base: Night | None, events: DataFrame | None) -> tuple[DataFrame, DataFrame | None]:
        """Matched once, kept in files: what is judged later reads the columns that it needs; and :meth:`_with_hops`."""
        ahead = self.frames.ahead(base)
        matched = ev.attribute(
            self.frames.inputs(base),
            self.frames.forwards(ahead),
            self.frames.outputs(ahead),
            self.frames.forward_committed(),
        )
        evidence = self._scratch("evidence", matched)
        of_units, of_hops = (F.count_if(F.expr(each)) for each in (units.OF_UNITS, hops.OF_HOPS))
        [(envelopes, bridged_ones)] = evidence.agg(of_units, of_hops).collect()
        if envelopes:
            evidence = self._with_units(evidence)
        return self._with_hops(evidence, base, events, there=bridged_ones > 0)

    def _with_units(self, matched: DataFrame) -> DataFrame:
        """The evidence, in which envelopes and their parts know of one another."""
        envelopes = matched.where(units.OF_UNITS)
        joined = self._scratch("units", units.joined(envelopes).unionByName(units.as_plain(matched)))
        return matched.where(f"not ({units.OF_UNITS})").unionByName(joined)

    def _with_hops(
        self, evidence: DataFrame, base: Night | None, events: DataFrame | None, *, there: bool
    ) -> tuple[DataFrame, DataFrame | None]:
        """The evidence, in which what came over bridges is told apart by what its lane knew of hops; and that, where there are any."""
        kept = self.frames.hops(base)
        if kept is None and not there:
            return evidence, None
        followed = self._scratch("hops", hops.followed(evidence.where(hops.OF_HOPS), kept, events))
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

    def _blocks(self, evidence: DataFrame, found: Judgement) -> DataFrame | None:
        """:func:`reconcile.night.places.blocks`; None = rows are sorted: there are few, or parts, or too many blocks."""
        if found.total("input") < FEW or found.total("parts"):
            return None
        kept = self._scratch("blocks", places.blocks(evidence))
        return kept if kept.count() <= places.SENT_MAX else None

    def _ids(
        self,
        evidence: DataFrame,
        chain: list[Night],
        detects: set[int],
        started: Column,
        found: Judgement,
        blocks: DataFrame | None,
    ) -> DataFrame:
        tonight = ev.accepted_ids(evidence, self.number).select(*IDS.names)
        path = self.files.at(ids_folder(self.date, self.number))
        count = found.total("accepted") + found.total("parts")
        accepted = narrow(tonight.withColumn("accepted", F.lit(True)), count)
        placed = resends.placed(accepted, started, self._forwarded(found), blocks)
        kept = placed.withColumn("position", F.col("earliest")).select(*IDS.names[:-1])
        first, *others = self.frames.addresses
        if not others and found.accepted[first.name]:  # else all are sorted, to find the folder of each
            only = self.files.at(kept_ids.folder_of(self.date, self.number, first.name))
            self.frames.named(kept).drop("address").write.mode("overwrite").parquet(only)
        else:
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
        those: DataFrame,
        ids: DataFrame,
        rules: DataFrame,
        events: DataFrame | None,
        grown: DataFrame | None,
        found: Judgement,
    ) -> DataFrame:
        """What is not accepted, and a duplicate of nothing; ``those``: of the IDs those that are there several times."""
        if not found.suspects[suspects.REPEATING]:
            return evidence.where(F.lit(False))
        candidates = evidence.where(originals.REPEATING)
        heirs = originals.with_heirs(those, grown)
        alone = self._scratch(
            "without_original", originals.without_original(candidates, heirs, rules, events, self.number)
        )
        if alone.isEmpty():
            return alone.select(*EVIDENCE.names)
        orphans = originals.orphans(alone, heirs, ids, events, self.number).select(*EVIDENCE.names)
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
        blocks: DataFrame | None,
    ) -> list[DataFrame]:
        spans = self.frames.spans()
        there = found.suspects
        looked_at = [rows(self.frames.gaps(), Anomaly.GAP, F.col("text"))]
        if there[suspects.SECOND]:
            looked_at.append(fates.doubled(evidence))
        if there[suspects.STRAY]:
            looked_at.append(fates.doubled_later(evidence, spans))
            looked_at.append(fates.phantom(evidence, spans))
            looked_at.append(fates.beyond_memory(evidence, spans))
        if there[suspects.CHANGED]:
            looked_at.append(fates.corrupted(evidence))
        if there[suspects.UNREAD]:
            looked_at.append(bridged.unread(evidence))
        transactions = found.total("parts") > 0
        if transactions:
            topics = [each.accepted_topic for each in self.frames.addresses]
            looked_at.append(torn.torn(evidence, rules, topics))
        verdicts = []
        if there[suspects.UNMATCHED]:
            verdicts.append(lost.lost(lost.unmatched(evidence), orphans, rules))
        if there[suspects.SAID_TO_REPEAT] or there[suspects.REPEATING]:
            verdicts.append(lost.wrong_verdict(orphans, evidence, rules))
        frames = [concatenated(each) for each in (looked_at, verdicts) if each]
        frames += self._reordered(evidence, found, blocks)
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

    def _reordered(self, evidence: DataFrame, found: Judgement, blocks: DataFrame | None) -> list[DataFrame]:
        """What is out of order; nothing where a look at whole partitions shows that they are in order."""
        if blocks is not None and not found.total("forwarded") and not order.looked_for(evidence, blocks):
            return []
        return [order.reordered(evidence, transactions=found.total("parts") > 0)]

    def _again(self, followed: DataFrame | None, promised: Column) -> DataFrame | None:
        """What is wrong with hops that were accepted again; None = nothing."""
        if followed is None:
            return None
        again = self._scratch("hops_again", bridged.again(followed, promised))
        if again.isEmpty():
            return None
        found = [bridged.forgotten(again, followed), bridged.apart(again, followed)]
        return self._scratch("hops_found", concatenated(found))

    # -- resends, and what the page shows ----------------------------------------------------------------------------

    def _resends(
        self,
        evidence: DataFrame,
        chain: list[Night],
        capacities: Sequence[int],
        started: Column,
        found: Judgement,
        met: recurring.Recurring,
        those: DataFrame,
        blocks: DataFrame | None,
    ) -> None:
        """How far apart they are; nothing is done where there can be none."""
        on = [number for number, each in enumerate(capacities) if each]
        if not on or not met.number:
            return
        ages = [round(each.id_max_age * 1000) for each in self.frames.addresses]
        count = found.total("input") + found.total("parts")
        seen = narrow(resends.seen(evidence, on, found.dropping), count)
        forwarded = self._forwarded(found)
        if blocks is not None and not any(forwarded):  # a place does not depend on what else is looked at
            seen = recurring.among(seen, met.digests, met.number)
        tonight = resends.placed(seen, started, forwarded, blocks)
        before = sum(n for night in chain for lanes in night.accepted.values() for n in lanes.values())
        of_ids = narrow(
            resends.beside(
                recurring.among(tonight, met.digests, met.number), those.where(F.col("night") != self.number)
            ),
            count + before,
        )
        by_address = distributions.by_address
        apart = resends.distances(of_ids, by_address(ages), by_address(capacities))
        self._write(self.frames.named(resends.counted(apart)), "resends")

    def _measure(self, evidence: DataFrame, orphans: DataFrame, written: DataFrame, found: Judgement) -> None:
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
            found.findings = distributions.first_of(written, FINDINGS_MAX).collect()

    # -- for the next night ----------------------------------------------------------------------------------------

    def _hand_on(self, evidence: DataFrame, found: Judgement) -> None:
        if found.total("waiting"):
            self._write(self.frames.named(ev.carried_inputs(evidence)), "inputs")
        if not found.suspects[suspects.ALONE]:
            return
        ahead = ev.ahead(evidence, self.frames.spans()).select(*EVIDENCE.names)
        if not ahead.isEmpty():
            self._write(self.frames.named(ahead), "ahead")

    def _write(self, frame: DataFrame, name: str, mode: str = "overwrite") -> None:
        frame.write.mode(mode).parquet(self.files.at(results_folder(self.number), name))

    def _read(self, name: str, schema: StructType) -> DataFrame:
        return self.spark.read.schema(schema).parquet(self.files.at(results_folder(self.number), name))


def narrow(frame: DataFrame, rows: int) -> DataFrame:
    """Few rows are sooner done in one task than handed from one to the next; ``rows`` is how many there can be."""
    return frame.coalesce(1) if rows < FEW else frame
