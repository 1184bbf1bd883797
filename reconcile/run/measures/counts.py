"""Counts a night: how many of what, in which lane, and when."""

from collections.abc import Sequence
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
from reconcile.spark.schemas import ACCEPTED, DIVERTED, EMPTIED, QUARANTINED
from reconcile.spark.small_frames import small
from reconcile.spark.topic_reader import Ranges


@dataclass(slots=True)
class Judgement:
    """What was found."""

    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Address → what was counted."""
    anomalies: dict[str, dict[str, int]] = field(default_factory=dict)
    """Address → name → how many."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Address → how many of its GAP may be LOST; 0 may be missing."""
    accepted: LaneCounts = field(default_factory=dict)
    """IDs that were accepted, by lane."""
    largest: dict[str, int] = field(default_factory=dict)
    """Address → the largest ring that it can have had."""
    emptied: LaneCounts = field(default_factory=dict)
    """Those after the ring of the lane was emptied in this night by order; only such lanes."""
    lanes: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)
    """Address → lane → what was counted."""
    dropping: frozenset[int] = frozenset()
    """Addresses, by number, whose IDs are looked at and whose duplicates have no topic: what has an ID and no output is
    one, unless it is lost."""
    times: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Address → the first and the last timestamp of its inputs, ms, without those that are far from most; missing = there
    are none."""
    suspects: dict[str, int] = field(default_factory=dict)
    """As :mod:`reconcile.run.measures.candidates` names them: how many rows an anomaly has to look at."""
    numbers: list[Row] = field(default_factory=list)
    """:data:`reconcile.spark.schemas.NUMBERS` of all that :mod:`reconcile.run.frames.distributions` makes."""
    findings: list[Row] = field(default_factory=list)
    """The first of each anomaly of an address, as the results have them."""

    def total(self, count: str) -> int:
        """What was counted under that name, of all addresses."""
        return sum(value.get(count, 0) for value in self.counts.values())

    @property
    def anomalous(self) -> int:
        """How many anomalies there are, of all kinds."""
        return sum(count for anomaly in self.anomalies.values() for count in anomaly.values())


BACKLOG_READ_MAX: Final = 1_000_000
"""Of a longer backlog the offsets are counted, those of markers and aborted records too."""
COUNTED: Final = (
    "input", "accepted", "diverted", "quarantined", "unchecked", "forwarded", "waiting", "unmatched", "dropped",
    "bridge_diverted", "bridge_dropped", "parts",
)  # fmt: skip


def count(
    frames: Frames, evidence: DataFrame, told: Journal, consumed: LaneCounts, beyond: Ranges, found: Judgement
) -> None:
    """A row a lane comes from Spark.

    Args:
        frames: Of the night.
        evidence: :data:`reconcile.spark.schemas.EVIDENCE`.
        told: What happened to rings.
        consumed: Up to where each lane had consumed the forward topic on the last night.
        beyond: What stands in the inputs beyond the cut.
        found: Where to put it.
    """
    once = F.expr(ONCE)
    capacities = F.array(*(F.lit(address.id_cache_size) for address in frames.addresses))
    fate = F.col("fate")
    accepted = once & (fate == ACCEPTED)
    dropping = F.col("address").isin(sorted(found.dropping)) if found.dropping else F.lit(False)
    identified = F.col("ids") > 0
    missing = once & fate.isNull() & ~F.col("waiting")
    diverted, by_hop = once & (fate == DIVERTED), F.col("resent")
    counted = (
        once,
        accepted,
        diverted & ~by_hop,
        once & (fate == QUARANTINED),
        accepted & (~identified | (F.get(capacities, F.col("address")) == 0)),
        once & F.col("forward_offset").isNotNull(),
        once & F.col("waiting"),
        missing,
        missing & ~by_hop & identified & dropping,
        diverted & by_hop,
        missing & by_hop & dropping,
    )
    dated = F.when(once & (F.col("timestamp") > 0), F.col("timestamp"))
    rows, since = _since(frames, evidence, told)
    lanes = rows.groupBy("address", "lane").agg(
        *(F.count_if(column).alias(name) for name, column in zip(COUNTED[:-1], counted, strict=True)),
        F.sum(F.when(once, F.coalesce("parts", F.lit(0))).otherwise(0)).alias(COUNTED[-1]),
        F.sum(F.when(accepted, F.col("ids")).otherwise(0)).alias("ids"),
        F.sum(F.when(accepted & since, F.col("ids")).otherwise(0)).alias("since"),
        *candidates.counted(),
        F.min(dated).alias("first"),
        F.max(dated).alias("last"),
    )
    names = [address.name for address in frames.addresses]
    found.counts = {name: dict.fromkeys([*COUNTED, "backlog"], 0) for name in names}
    found.accepted, found.emptied = {name: {} for name in names}, {name: {} for name in names}
    found.lanes = {name: {} for name in names}
    newest: LaneCounts = {name: {} for name in names}
    found.suspects = candidates.none()
    for row in lanes.collect():
        name = names[row["address"]]
        _note(row, name, found)
        newest[name][row["lane"]] = row["since"]
    # Also of a lane that judged nothing in this night.
    for number, several in told.items():
        name = names[number]
        for item in several:
            before = consumed.get(name, {}).get(item.lane, 0)
            if item.emptied and journal.since(frames.cuts[name], item.lane, item.emptied, before):
                found.emptied[name][item.lane] = newest[name].get(item.lane, 0)
    _leave_strays(evidence.where(ONCE), names, found)
    for (number, partition), count in backlog(frames, beyond).items():
        name = names[number]
        found.counts[name]["backlog"] += count
        found.lanes[name].setdefault(partition, {})["backlog"] = count


def backlog(frames: Frames, beyond: Ranges) -> dict[tuple[int, int], int]:
    """Address and partition → records beyond the cut. To read very many only to count them would take the night: at most so many."""
    spans = {
        (topic, number): end - begin
        for topic, value in beyond.items()
        for number, (begin, end) in value.items()
    }
    if sum(spans.values()) > BACKLOG_READ_MAX:
        numbers = {address.input_topic: n for n, address in enumerate(frames.addresses)}
        return {(numbers[topic], number): count for (topic, number), count in spans.items()}
    records = frames.backlog(beyond)
    if records is None:
        return {}
    rows = records.groupBy("address", "partition").count().collect()
    return {(row["address"], row["partition"]): row["count"] for row in rows}


def _note(row: Row, name: str, found: Judgement) -> None:
    """What was counted in one lane."""
    for item in COUNTED:
        found.counts[name][item] += row[item]
    for item, n in candidates.of_row(row).items():
        found.suspects[item] += n
    lane = row["lane"]
    if lane is None:  # outputs that name no input
        return
    found.lanes[name][lane] = {item: row[item] for item in COUNTED}
    if row["ids"]:
        found.accepted[name][lane] = row["ids"]
    if row["first"] is not None:
        first, last = found.times.get(name, (row["first"], row["last"]))
        found.times[name] = min(first, row["first"]), max(last, row["last"])


def _since(frames: Frames, evidence: DataFrame, told: Journal) -> tuple[DataFrame, Column]:
    """The rows, and whether each was judged after its ring was last emptied by order."""
    last = [
        (number, item.lane, *item.emptied)
        for number, several in told.items()
        for item in several
        if item.emptied
    ]
    if not last:
        return evidence, F.lit(True)
    emptied = F.broadcast(small(frames.spark, last, EMPTIED))
    rows = evidence.join(emptied, on=["address", "lane"], how="left")
    before = F.coalesce(
        F.col("forward_offset") < F.col("forward_next"), F.col("offset") < F.col("input_next")
    )
    return rows, ~F.coalesce(before, F.lit(False))


def _leave_strays(inputs: DataFrame, names: Sequence[str], found: Judgement) -> None:
    """Where the times of an address cover more than a night may, look whether a few are far from all others."""
    wide = [
        number for number, name in enumerate(names)
        if name in found.times and found.times[name][1] - found.times[name][0] > LONG_MS
    ]  # fmt: skip
    if not wide:
        return
    middle = F.percentile_approx("timestamp", [0.25, 0.75], 1_000).alias("middle")
    dated = inputs.where(F.col("address").isin(wide) & (F.col("timestamp") > 0))
    for row in dated.groupBy("address").agg(middle).collect():
        name = names[row["address"]]
        found.times[name] = without_strays(*found.times[name], *row["middle"])


def count_anomalies(written: DataFrame, found: Judgement) -> None:
    """Of those that the results have."""
    unknown = F.count_if((F.col("anomaly") == Anomaly.GAP) & (F.col("suspected") == Anomaly.LOST))
    found.anomalies, found.unknown = {name: {} for name in found.counts}, dict.fromkeys(found.counts, 0)
    for row in (
        written.groupBy("address", "anomaly")
        .agg(F.count(F.lit(1)).alias("n"), unknown.alias("unknown"))
        .collect()
    ):
        found.anomalies[row["address"]][row["anomaly"]] = row["n"]
        found.unknown[row["address"]] += row["unknown"]
