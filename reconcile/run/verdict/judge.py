"""Judges one run step by step: evidence, counts, anomalies, measurements, state for the next run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.anomalies.finders import originals
from reconcile.anomalies.finders import repeated_ids as repetition
from reconcile.anomalies.names import Anomaly, doubted
from reconcile.page.report_data import FINDINGS_MAX
from reconcile.run.frames import distributions, hops, id_positions, journal, match, ring_numbers
from reconcile.run.frames import evidence as ev
from reconcile.run.frames.distributions import by_address
from reconcile.run.frames.frames import Frames
from reconcile.run.frames.journal import Journal
from reconcile.run.frames.scope import records
from reconcile.run.history import id_store
from reconcile.run.history import rules as kept_rules
from reconcile.run.history.history import Run, added
from reconcile.run.history.layout import ids_folder
from reconcile.run.measures import repeated_ids, resend_distance
from reconcile.run.measures.counts import Judgement, count, count_anomalies
from reconcile.run.measures.repeated_ids import RepeatedIds
from reconcile.run.verdict import anomaly_search, summary
from reconcile.run.verdict.anomaly_search import FinderInput
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


@dataclass(slots=True, kw_only=True)
class Judge(FinderInput):
    """Judgement of one run. Each step uses the results of the steps before."""

    date: str
    progress: Progress
    base: Run | None
    beyond: Ranges  # ranges of inputs beyond the cut
    complete: Mapping[str, bool]  # address → whether all IDs in its rings are known
    recent: Sequence[Run] = ()  # runs whose resends count for the advice
    confidence: float = 1.0  # share of resends that the advised ring would have caught
    overrun_max: float = 1.0  # share of duplicates that may be OVERRUN

    _followed: DataFrame | None = field(init=False, default=None)
    _histories: Journal = field(init=False)
    _detects: set[int] = field(init=False)
    _largest: list[int] = field(init=False)
    _digests: RepeatedIds = field(init=False)
    _orphans: DataFrame = field(init=False)
    _anomalies: DataFrame = field(init=False)

    def judge(self) -> Judgement:
        """Run all steps, and write the results. They become valid when the run is committed."""
        steps = (self._match, self._count, self._find_repeated, self._search, self._measure, self._hand_on)
        for name, step in zip(STEPS, steps, strict=True):
            self.progress.start_step(name)
            self.progress.count(step())
        return self.found

    @property
    def _frames(self) -> Frames:
        return self.workspace.frames

    # -- the steps; each returns its counts as text
    # -------------------------------------------------------------

    def _match(self) -> str:
        """Match inputs with outputs, and collect events of rings."""
        addresses, cuts = self._frames.addresses, self._frames.cuts
        if self.events is not None:  # few rows, which most later steps join
            self.events = self.workspace.scratch("events", self.events)
        events, self.grown = journal.of_growth(self.events)
        self.evidence, self._followed = match.matched(self.workspace, events, self.grown)
        self.events = None if events is None else events.where(~F.coalesce("of_hops", F.lit(False)))
        return f"{counted(records(cuts), 'offset')} of {counted(len(addresses), 'address', 'addresses')}"

    def _count(self) -> str:
        addresses, base = self._frames.addresses, self.base
        self._histories = journal.ring_histories(self.events)
        self._detects = kept_rules.detects(addresses, self._histories, base)
        self._largest = journal.largest(addresses, self._histories, self.chain)
        self.found = Judgement(
            dropping=frozenset(
                n
                for n in self._detects
                if addresses[n].observes or not kept_rules.diverts(addresses[n], base)
            ),
            largest={address.name: size for address, size in zip(addresses, self._largest, strict=True)},
        )
        consumed = base.consumed if base else {}
        count(self._frames, self.evidence, self._histories, consumed, self.beyond, self.found)
        self.found.set_modes(
            {n: addresses[n].name for n in self._detects},
            [n for n, address in enumerate(addresses) if kept_rules.observes(address, base)],
            [n for n, address in enumerate(addresses) if kept_rules.observed(address, base)],
        )
        return summary.by_address(self.found.counts)

    def _find_repeated(self) -> str:
        """Keep the accepted IDs of this run, and find the IDs that occur several times."""
        evidence, found, number = self.evidence, self.found, self.workspace.number
        if found.total("input") >= FEW and not found.total("parts"):
            blocks = self.workspace.scratch("blocks", id_positions.blocks(evidence))
            self.blocks = blocks if blocks.count() <= id_positions.SENT_MAX else None
        self.ids = self._accepted_ids()
        others = evidence.where(originals.REPEATING) if found.suspects[originals.REPEATING] else None
        digests = self.workspace.scratch("recurring", repeated_ids.digests(self.ids, others, number))
        [(several, again)] = digests.agg(F.count(F.lit(1)), F.count_if("again")).collect()
        self._digests = RepeatedIds(digests, several, again > 0)
        if self._digests.number:
            recurring = repeated_ids.among(self.ids, self._digests.digests, self._digests.number)
            self.recurring = self.workspace.scratch("recurring_ids", recurring)
        else:
            self.recurring = self.ids.where(F.lit(False))
        if self._digests.again:
            rings = self._frames.ring_numbers()
            settled = ring_numbers.settled(rings) if any(item.regroups for item in rings) else None
            found_again = repetition.repeated(self.recurring, number, settled)
            repeated = self.workspace.scratch("repeated", found_again)
            self.repeated = None if repeated.isEmpty() else repeated
        return counted(self._digests.number, "repeated ID")

    def _search(self) -> str:
        addresses, cuts, found = self._frames.addresses, self._frames.cuts, self.found
        rings = self._frames.ring_numbers()
        self.promised = kept_rules.promised(addresses, cuts, self.chain, rings)
        self.rules = self._frames.rules(
            kept_rules.rules_of(
                addresses,
                cuts,
                self.chain,
                self.workspace.number,
                self._largest,
                self._detects,
                found.observing,
                found.dropping,
                self.complete,
            )
        )
        self._orphans = anomaly_search.orphans(self)
        self._followed = anomaly_search.without_lost(self.workspace, self._followed, self._orphans, found)
        frames = anomaly_search.anomalies(self, self._orphans, self._followed)
        if found.total("input") < FEW:
            frames = [concatenated(frames)]
        doubts = [
            *kept_rules.doubts(addresses, cuts, self.base, rings),
            *kept_rules.doubts_of_modes(found.partly),
        ]
        # Write one frame after the other: each plan stays small and can use all memory.
        for frame in frames:
            named = self._frames.topics_named(doubted(frame, doubts))
            self.workspace.write_results(named, "anomalies", "append")
        self._anomalies = self.workspace.read_results("anomalies", named.schema)
        count_anomalies(self._anomalies, found)
        return counted(found.anomalous, "anomaly", "anomalies")

    def _measure(self) -> str:
        """Measure everything for advice and page, and collect the first anomalies."""
        self._write_resends()
        found = self.found
        frames = [*self._traffic(), *self._resends()]
        if frames:
            found.numbers.extend(concatenated(frames).collect())
        if found.anomalous:
            found.findings.extend(distributions.first_of(self._anomalies, FINDINGS_MAX).collect())
        return counted(found.total("input"), "message")

    def _hand_on(self) -> str:
        """Write the state for the next run."""
        waiting = self.found.total("waiting")
        if waiting:
            self._write(ev.carried_inputs(self.evidence), "inputs")
        if self.found.suspects[ev.WITHOUT_INPUT]:
            ahead = ev.ahead(self.evidence, self._frames.spans()).select(*EVIDENCE.names)
            if not ahead.isEmpty():
                self._write(ahead, "ahead")
        if self._followed is not None:
            most = by_address([min(size, hops.KEPT_MAX) for size in self._largest])
            self._write(hops.kept_on(self._followed, most), "hops")
        return f"{counted(waiting, 'message')} for the next run"

    # -- parts of the steps
    # -------------------------------------------------------------------------------------

    def _write(self, frame: DataFrame, name: str) -> None:
        self.workspace.write_results(self._frames.named(frame), name)

    def _accepted_before(self) -> Column:
        """Return the number of IDs that each lane had accepted before this run."""
        total = added(run.accepted for run in self.chain)
        return resend_distance.by_lane([total.get(address.name, {}) for address in self._frames.addresses])

    def _forwarded(self) -> list[set[int]]:
        """Return by address the lanes that got forwarded records."""
        lanes = [self.found.lanes[address.name] for address in self._frames.addresses]
        return [{lane for lane, counts in item.items() if counts.get("forwarded")} for item in lanes]

    def _sequenced(self) -> list[int]:
        """Return the addresses whose accepted records have sequence numbers."""
        return [number for number, rings in enumerate(self._frames.ring_numbers()) if rings.fixed]

    def _accepted_ids(self) -> DataFrame:
        """Write the accepted IDs of this run; return IDs of all runs for addresses that detect duplicates."""
        found, files, number = self.found, self._frames.files, self.workspace.number
        of_lanes = resend_distance.among("address", self._sequenced())
        told = ev.accepted_ids(self.evidence, number)
        new = told.withColumn("sequence", F.when(of_lanes, F.col("sequence"))).select(*IDS.names)
        accepted = narrow(
            new.withColumn("accepted", F.lit(True)), found.total("accepted") + found.total("parts")
        )
        placed = resend_distance.placed(
            accepted, self._accepted_before(), self._forwarded(), self.blocks, self._sequenced()
        )
        kept = self._frames.named(placed.withColumn("position", F.col("earliest")).select(*IDS.names[:-1]))
        first, *others = self._frames.addresses
        if not others and found.accepted[first.name]:  # else rows are sorted, to find their folders
            path = files.at(id_store.address_folder(self.date, number, first.name))
            kept.drop("address").write.mode("overwrite").parquet(path)
        else:
            path = files.at(ids_folder(self.date, number))
            kept.write.mode("overwrite").partitionBy("address").parquet(path)
        return new.unionByName(self._frames.ids(self.chain)).where(
            resend_distance.among("address", self._detects)
        )

    def _write_resends(self) -> None:
        """Measure the distance of each resend of this run to its original, if there are resends."""
        addresses, found, digests = self._frames.addresses, self.found, self._digests
        capacities = journal.capacities(addresses, self._largest)
        on = [number for number, capacity in enumerate(capacities) if capacity]
        if not on or not digests.number:
            return
        ages = [round(address.id_max_age * 1000) for address in addresses]
        new = found.total("input") + found.total("parts")
        seen = narrow(resend_distance.seen(self.evidence, on, found.dropping), new)
        forwarded = self._forwarded()
        if (
            self.blocks is not None and not any(forwarded) and not self._sequenced()
        ):  # a row's place does not depend on other rows here
            seen = repeated_ids.among(seen, digests.digests, digests.number)
        placed = resend_distance.placed(
            seen, self._accepted_before(), forwarded, self.blocks, self._sequenced()
        )
        before = sum(n for run in self.chain for lanes in run.accepted.values() for n in lanes.values())
        of_ids = resend_distance.beside(
            repeated_ids.among(placed, digests.digests, digests.number),
            self.recurring.where(F.col("run") != self.workspace.number),
        )
        distances = resend_distance.distances(
            narrow(of_ids, new + before), by_address(ages), by_address(capacities)
        )
        self._write(resend_distance.counted(distances), "resends")

    def _traffic(self) -> list[DataFrame]:
        """Return :data:`reconcile.spark.schemas.NUMBERS` of the inputs."""
        found, orphans = self.found, self._orphans
        if not found.total("input"):
            return []
        evidence = narrow(self.evidence, found.total("input") + found.total("parts"))
        times = [found.times.get(address.name, (0, 0)) for address in self._frames.addresses]
        dropping = resend_distance.among("address", found.dropping)
        lost = [anomalies.get(Anomaly.LOST, 0) for anomalies in found.anomalies.values()]
        some = orphans if any([*lost, *found.unknown.values()]) else None
        made = [distributions.moments(evidence, some, times, dropping), distributions.groups(evidence)]
        return made if some is None else [*made, distributions.orphaned(some)]

    def _resends(self) -> list[DataFrame]:
        """Return :data:`reconcile.spark.schemas.NUMBERS` of resends in this run and recent runs."""
        seen = self._frames.resends(self.recent, self.workspace.number)
        if seen is None:
            return []
        seen = narrow(seen, self.found.total("input") + sum(run.inputs for run in self.recent))
        made = [
            distributions.ring(seen, self.confidence),
            distributions.ring_by_lane(seen),
            distributions.bins(seen),
        ]
        own = self._frames.resends((), self.workspace.number)
        if own is not None:
            own = narrow(own, self.found.total("input"))
            made.append(distributions.conflicts(own))
            if any(anomalies.get(Anomaly.OVERRUN) for anomalies in self.found.anomalies.values()):
                made.append(distributions.enough(own, 1 - self.overrun_max))
        return made


def narrow(frame: DataFrame, rows: int) -> DataFrame:
    """Put few rows into one task, which is faster than several. ``rows``: upper bound of the rows."""
    return frame.coalesce(1) if rows < FEW else frame
