"""Counts of one run: records by address and lane, times, backlog, and anomalies."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from reconcile.anomalies.names import Anomaly
from reconcile.run.frames import journal
from reconcile.run.frames.distributions import LONG_MS, without_strays
from reconcile.run.frames.evidence import ONCE
from reconcile.run.frames.frames import Frames
from reconcile.run.frames.journal import Journal
from reconcile.run.history.history import LaneCounts
from reconcile.run.measures import candidates
from reconcile.spark.columns import constant, small
from reconcile.spark.schemas import ACCEPTED, EMPTIED, OBSERVED, QUARANTINED, REPEATS
from reconcile.spark.topic_reader import Ranges

BACKLOG_READ_MAX: Final = 1_000_000
"""Limit for reading the backlog. A longer one is counted in offsets, with markers and aborted records."""
COUNTED: Final = (
    "input", "accepted", "diverted", "quarantined", "unchecked", "forwarded", "waiting", "unmatched", "dropped",
    "bridge_diverted", "bridge_dropped", "observed", "marked", "parts",
)  # fmt: skip


@dataclass(slots=True)
class Judgement:
    """Findings of a run, filled step by step. Keys are names of addresses unless noted."""

    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    anomalies: dict[str, dict[str, int]] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)  # GAPs that may be LOST
    accepted: LaneCounts = field(default_factory=dict)  # accepted IDs by lane
    largest: dict[str, int] = field(default_factory=dict)  # largest ring size that the address may have had
    emptied: LaneCounts = field(default_factory=dict)
    """IDs since the ring of a lane was last emptied by order, in this run; other lanes are absent."""
    lanes: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)  # counts by lane
    dropping: frozenset[int] = frozenset()
    """Numbers of addresses that drop duplicates: an input with an ID but no output is a duplicate or lost."""
    observing: frozenset[int] = frozenset()
    """Numbers of addresses that detect duplicates but pass them: an input without an output is lost."""
    partly: frozenset[int] = frozenset()
    """Observing addresses with accepted records without a verdict: a worker may have dropped duplicates."""
    times: dict[str, tuple[int, int]] = field(default_factory=dict)
    """First and last timestamp of the inputs in ms, without strays."""
    suspects: Counter[str] = field(default_factory=Counter)
    """Condition of :mod:`reconcile.run.measures.candidates` → number of its rows."""
    numbers: list[Row] = field(default_factory=list)  # rows of NUMBERS, see schemas.py
    findings: list[Row] = field(default_factory=list)  # first anomalies of each name and address

    def total(self, count: str) -> int:
        """Return the sum of a count over all addresses."""
        return sum(value.get(count, 0) for value in self.counts.values())

    @property
    def anomalous(self) -> int:
        """Number of anomalies of all kinds."""
        return sum(count for anomaly in self.anomalies.values() for count in anomaly.values())

    def set_modes(
        self, names: Mapping[int, str], configured: Collection[int], settled: Collection[int] = ()
    ) -> None:
        """Set :attr:`observing`: ``configured`` addresses whose accepted records all have a verdict.

        An address that observed for part of the time may have dropped duplicates the rest of the time.
        ``settled`` ones observed in the last run too, so they count even if some records have no verdict.
        """
        counts = {number: self.counts[name] for number, name in names.items()}
        marked = {number for number, item in counts.items() if item["marked"]}
        whole = {n for n in marked if counts[n]["marked"] == counts[n]["accepted"] + counts[n]["observed"]}
        self.observing = frozenset((whole | marked.intersection(settled)).intersection(configured))
        self.partly = self.observing - whole
        self.dropping = (self.dropping | marked) - self.observing
        for number in self.observing:
            for item in (counts[number], *self.lanes[names[number]].values()):
                item["dropped"] = 0

    def start_counting(self, names: Sequence[str]) -> None:
        """Set all counts of these addresses to zero."""
        for name in names:
            self.counts[name] = dict.fromkeys([*COUNTED, "backlog"], 0)
            self.accepted[name], self.emptied[name], self.lanes[name] = {}, {}, {}

    def add_lane(self, name: str, row: Row) -> None:
        """Add the counts of one lane. Lane None stands for outputs that name no input."""
        for item in COUNTED:
            self.counts[name][item] += row[item]
        self.suspects.update(candidates.of_row(row))
        if (lane := row["lane"]) is None:
            return
        self.lanes[name][lane] = {item: row[item] for item in COUNTED}
        if row["ids"]:
            self.accepted[name][lane] = row["ids"]
        if row["first"] is not None:
            first, last = self.times.get(name, (row["first"], row["last"]))
            self.times[name] = min(first, row["first"]), max(last, row["last"])


def count(
    frames: Frames,
    evidence: DataFrame,
    histories: Journal,
    consumed: LaneCounts,
    beyond: Ranges,
    found: Judgement,
) -> None:
    """Add the counts of a run to ``found``.

    ``histories`` are events of rings, ``consumed`` each lane's end in the forward topic in the last run, and
    ``beyond`` the ranges of inputs beyond the cut.
    """
    names, rings = [address.name for address in frames.addresses], frames.ring_numbers()
    found.start_counting(names)
    newest: LaneCounts = {name: {} for name in names}
    for row in _lane_counts(frames, evidence, histories, found.dropping).collect():
        name = names[row["address"]]
        found.add_lane(name, row)
        newest[name][row["lane"]] = row["since"]
    # lanes that judged nothing in this run may have been emptied too
    for number, lanes in histories.items():
        name = names[number]
        for ring in lanes:
            before = consumed.get(name, {}).get(ring.lane - rings[number].start, 0)
            if ring.emptied and journal.since(
                frames.cuts[name], rings[number], ring.lane, ring.emptied, before
            ):
                found.emptied[name][ring.lane] = newest[name].get(ring.lane, 0)
    _leave_strays(evidence.where(ONCE), names, found)
    for (number, partition), records in backlog(frames, beyond).items():
        name = names[number]
        found.counts[name]["backlog"] += records
        lane = found.lanes[name].setdefault(rings[number].of_partition(partition), {})
        lane["backlog"] = lane.get("backlog", 0) + records


def _lane_counts(
    frames: Frames, evidence: DataFrame, histories: Journal, dropping: frozenset[int]
) -> DataFrame:
    """Return a row for each lane with :data:`COUNTED`, IDs, candidates of anomalies, and times."""
    once, fate, identified, by_hop = F.expr(ONCE), F.col("fate"), F.col("ids") > 0, F.col("resent")
    capacities = constant([address.id_cache_size for address in frames.addresses], "array<bigint>")
    accepted, diverted = once & (fate == ACCEPTED), once & fate.isin(*REPEATS)
    missing = once & fate.isNull() & ~F.col("waiting")
    dropped = missing & (F.col("address").isin(sorted(dropping)) if dropping else F.lit(False))
    counted = (
        once,
        accepted,
        diverted & ~by_hop,
        once & (fate == QUARANTINED),
        accepted & (~identified | (F.get(capacities, F.col("address")) == 0)),
        once & F.col("forward_offset").isNotNull(),
        once & F.col("waiting"),
        missing,
        dropped & ~by_hop & identified,
        diverted & by_hop,
        dropped & by_hop,
        once & (fate == OBSERVED),
        once & F.col("marked"),
    )
    dated = F.when(once & (F.col("timestamp") > 0), F.col("timestamp"))
    rows, since = _since(frames, evidence, histories)
    return rows.groupBy("address", "lane").agg(
        *(F.count_if(column).alias(name) for name, column in zip(COUNTED[:-1], counted, strict=True)),
        F.sum(F.when(once, F.coalesce("parts", F.lit(0))).otherwise(0)).alias(COUNTED[-1]),
        F.sum(F.when(accepted, F.col("ids")).otherwise(0)).alias("ids"),
        F.sum(F.when(accepted & since, F.col("ids")).otherwise(0)).alias("since"),
        *candidates.counted(),
        *candidates.sequences(),
        F.min(dated).alias("first"),
        F.max(dated).alias("last"),
    )


def backlog(frames: Frames, beyond: Ranges) -> dict[tuple[int, int], int]:
    """Return records beyond the cut by partition; above :data:`BACKLOG_READ_MAX`, offsets instead."""
    spans = {
        (topic, number): end - begin
        for topic, value in beyond.items()
        for number, (begin, end) in value.items()
    }
    if sum(spans.values()) > BACKLOG_READ_MAX:
        numbers = {address.input_topic: n for n, address in enumerate(frames.addresses)}
        return {(numbers[topic], number): records for (topic, number), records in spans.items()}
    records = frames.backlog(beyond)
    if records is None:
        return {}
    rows = records.groupBy("address", "partition").count().collect()
    return {(row["address"], row["partition"]): row["count"] for row in rows}


def _since(frames: Frames, evidence: DataFrame, histories: Journal) -> tuple[DataFrame, Column]:
    """Return the rows, and whether each was judged after its ring was last emptied by order."""
    last = [
        (number, ring.lane, *ring.emptied)
        for number, lanes in histories.items()
        for ring in lanes
        if ring.emptied
    ]
    if not last:
        return evidence, F.lit(True)
    emptied = F.broadcast(small(frames.spark, last, EMPTIED))
    rows = evidence.join(emptied, on=["address", "lane"], how="left")
    return rows, ~F.coalesce(journal.judged_before(F.col), F.lit(False))


def _leave_strays(inputs: DataFrame, names: Sequence[str], found: Judgement) -> None:
    """Shorten a long time range if only a few records are far from the others."""
    spans = {number: found.times[name] for number, name in enumerate(names) if name in found.times}
    wide = [number for number, (first, last) in spans.items() if last - first > LONG_MS]
    if not wide:
        return
    middle = F.percentile_approx("timestamp", [0.25, 0.75], 1_000).alias("middle")
    dated = inputs.where(F.col("address").isin(wide) & (F.col("timestamp") > 0))
    for row in dated.groupBy("address").agg(middle).collect():
        found.times[names[row["address"]]] = without_strays(*spans[row["address"]], *row["middle"])


def count_anomalies(written: DataFrame, found: Judgement) -> None:
    """Add the number of anomalies in the results to ``found``."""
    unknown = F.count_if((F.col("anomaly") == Anomaly.GAP) & (F.col("suspected") == Anomaly.LOST))
    found.anomalies.update({name: {} for name in found.counts})
    found.unknown.update(dict.fromkeys(found.counts, 0))
    counted = F.count(F.lit(1)).alias("n"), unknown.alias("unknown")
    for row in written.groupBy("address", "anomaly").agg(*counted).collect():
        found.anomalies[row["address"]][row["anomaly"]] = row["n"]
        found.unknown[row["address"]] += row["unknown"]
