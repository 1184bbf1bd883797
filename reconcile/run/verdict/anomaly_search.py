"""Searches the evidence for anomalies: each finder with candidates runs once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reconcile.anomalies.finders import (
    bridge_hops,
    fates,
    lane_moves,
    lost_inputs,
    order,
    originals,
    repeated_ids,
    ring_ranks,
)
from reconcile.anomalies.names import Anomaly, rows
from reconcile.run.frames import hops, ring_numbers
from reconcile.run.frames.evidence import FIRST, PLACE
from reconcile.run.frames.workspace import Workspace
from reconcile.run.history.history import Run
from reconcile.run.measures import candidates
from reconcile.run.measures.counts import Judgement
from reconcile.run.measures.resend_distance import among, by_lane
from reconcile.run.verdict import orphan_outputs
from reconcile.spark.schemas import ANOMALIES, EVIDENCE
from reconcile.spark.topic_reader import concatenated


@dataclass(slots=True, kw_only=True)
class FinderInput:
    """Input of the finders, filled step by step. Comments name the schema of a frame; None = it has no rows."""

    workspace: Workspace
    chain: Sequence[Run]  # base, base of the base and so on
    events: DataFrame | None  # EVENTS of the journal; after the match those of rings
    found: Judgement = field(init=False)
    evidence: DataFrame = field(init=False)  # EVIDENCE
    ids: DataFrame = field(init=False)  # IDS of this run and of the runs before
    recurring: DataFrame = field(init=False)  # IDS that occur several times, accepted or not
    repeated: DataFrame | None = field(init=False, default=None)  # IDS accepted several times
    grown: DataFrame | None = field(init=False, default=None)  # EVENTS of addresses that got more lanes
    rules: DataFrame = field(init=False)  # RULES
    promised: Sequence[Mapping[int, int]] = field(init=False)  # ring size by address and lane
    blocks: DataFrame | None = field(init=False, default=None)  # see reconcile.run.frames.id_positions

    @property
    def transactions(self) -> bool:
        """Whether this run has transactions."""
        return self.found.total("parts") > 0

    @property
    def diverts_conflicts(self) -> bool:
        """Whether some address diverts duplicates with another value to its duplicates topic."""
        return any(address.on_conflict == "divert" for address in self.workspace.frames.addresses)


def anomalies(context: FinderInput, orphans: DataFrame, followed: DataFrame | None) -> list[DataFrame]:
    """Return anomalies in a few frames: ``orphans`` and ``followed`` are results of the functions below."""
    counts, evidence, rules = context.found.suspects, context.evidence, context.rules
    by_evidence = [rows(context.workspace.frames.gaps(), Anomaly.GAP, F.col("text"))]
    if counts[fates.SECOND]:
        by_evidence.append(fates.doubled(evidence))
    if counts[fates.STRAY]:
        by_evidence.append(_stray_outputs(context))
    if counts[fates.CHANGED]:
        by_evidence.append(fates.corrupted(evidence))
    if counts[bridge_hops.UNREAD]:
        by_evidence.append(bridge_hops.unread(evidence))
    if context.transactions:
        topics = [address.accepted_topic for address in context.workspace.frames.addresses]
        by_evidence.append(lost_inputs.torn(evidence, rules, topics))
    if counts[candidates.NUMBERED_TWICE]:
        by_evidence.append(_numbered_twice(context))
    by_original = []
    if counts[lost_inputs.UNMATCHED]:
        by_original.append(lost_inputs.lost(lost_inputs.unmatched(evidence), orphans, rules))
    if counts[lost_inputs.SAID_TO_REPEAT] or counts[originals.REPEATING]:
        by_original.append(lost_inputs.wrong_verdict(orphans, evidence, rules))
    if counts[lost_inputs.SAID_TO_REPEAT]:
        by_original.append(lost_inputs.let_pass(evidence, orphans, rules))
    of_hops = _of_hops(context, followed)
    frames = [] if of_hops is None else [of_hops]
    frames += [concatenated(found) for found in (by_evidence, by_original) if found]
    return [*frames, *_reordered(context), *_repeated(context, of_hops)]


def orphans(context: FinderInput) -> DataFrame:
    """Return inputs with an ID that were not accepted and repeat nothing, and conflicts not diverted."""
    if not context.found.suspects[originals.REPEATING]:
        return context.evidence.where(F.lit(False))
    found = _of_nothing(context)
    if not context.diverts_conflicts or not context.found.suspects[lost_inputs.UNMATCHED]:
        return found
    repeating = context.evidence.where(originals.REPEATING)
    missing = originals.conflicts(repeating, context.recurring, found, context.rules)
    return context.workspace.scratch("orphans_and_conflicts", found.unionByName(missing))


def _of_nothing(context: FinderInput) -> DataFrame:
    """Return inputs with an ID that were not accepted and repeat nothing."""
    workspace, events, number = context.workspace, context.events, context.workspace.number
    rings = workspace.frames.ring_numbers()
    knowing = ring_numbers.knowing(rings) if any(item.regroups for item in rings) else None
    heirs = originals.with_heirs(context.recurring, context.grown, knowing)
    repeating = context.evidence.where(originals.REPEATING)
    if any(item.fixed for item in rings):
        repeating = ring_ranks.with_heads(repeating, context.ids, events, number)
    alone = originals.without_near(repeating, heirs, context.rules, events, number)
    alone = workspace.scratch("without_near", alone)
    if not alone.isEmpty():
        alone = originals.without_original(alone, heirs, events, number)
        alone = workspace.scratch("without_original", alone)
    if alone.isEmpty():
        return alone.select(*EVIDENCE.names)
    orphans = originals.orphans(alone, heirs, context.ids, events, number).select(*EVIDENCE.names)
    return workspace.scratch("orphans", originals.of_units(orphans))


def without_lost(
    workspace: Workspace, followed: DataFrame | None, orphans: DataFrame, found: Judgement
) -> DataFrame | None:
    """Return records that came over bridges. Lanes do not know the hops of lost inputs."""
    if followed is None or not found.suspects[lost_inputs.UNMATCHED]:
        return followed
    lost = workspace.scratch("hops_lost", hops.lost(followed, orphans, among("address", found.dropping)))
    return followed if lost.isEmpty() else workspace.scratch("hops_told", hops.without_lost(followed, lost))


def with_groups(found: DataFrame, evidence: DataFrame) -> DataFrame:
    """Add the groups of the inputs to anomalies, because kept IDs have only digests of groups."""
    groups = evidence.where(FIRST).select(*PLACE, F.col("group").alias("of_input"))
    both = found.drop("group").join(groups, on=PLACE, how="left")
    return both.withColumnRenamed("of_input", "group").select(*ANOMALIES.names)


def _stray_outputs(context: FinderInput) -> DataFrame:
    spans, frames = context.workspace.frames.spans(), context.workspace.frames
    finders = (fates.doubled_later, fates.phantom, fates.beyond_memory)
    found = concatenated([finder(context.evidence, spans) for finder in finders])
    return orphan_outputs.with_names(frames, context.workspace.scratch("strays", found))


def _numbered_twice(context: FinderInput) -> DataFrame:
    this_run = context.ids.where(F.col("run") == context.workspace.number)
    return with_groups(ring_ranks.given_twice(this_run, context.events), context.evidence)


def _of_hops(context: FinderInput, followed: DataFrame | None) -> DataFrame | None:
    """Return anomalies of hops that were accepted again; None = no anomalies."""
    if followed is None:
        return None
    workspace = context.workspace
    again = bridge_hops.again(followed, by_lane(context.promised))
    again = workspace.scratch("hops_again", again)
    if again.isEmpty():
        return None
    found = [bridge_hops.forgotten(again, followed), bridge_hops.apart(again, followed)]
    return workspace.scratch("hops_found", concatenated(found))


def _reordered(context: FinderInput) -> list[DataFrame]:
    """Return broken order within this run, and with the last run.

    The search within this run is skipped if whole partitions are in order.
    """
    evidence, blocks, frames = context.evidence, context.blocks, context.workspace.frames
    in_order = (
        blocks is not None
        and not context.found.total("forwarded")
        and not order.may_be_broken(evidence, blocks)
    )
    found = [] if in_order else [order.reordered(evidence, transactions=context.transactions)]
    left = frames.left()
    last = frames.ids([run for run in context.chain if run.number in left])
    if left:
        found.append(order.scattered_across(evidence, last, frames.accepted_spans()))
    if frames.carries():
        found.append(order.reordered_across(evidence, last, frames.spans(), frames.accepted_spans()))
    return found


def _repeated(context: FinderInput, of_hops: DataFrame | None) -> list[DataFrame]:
    """Return anomalies of IDs accepted several times, without those that a hop explains."""
    repeated, number = context.repeated, context.workspace.number
    if repeated is None:
        return []
    rings, ids, events = context.workspace.frames.ring_numbers(), context.ids, context.events
    lanes = repeated.select("address", "lane").distinct()
    promised = any(address.id_min_age for address in context.workspace.frames.addresses)
    sequenced = any(item.fixed for item in rings)
    ranked = ring_ranks.ranks(ids, lanes, events, sequenced=sequenced, promised=promised)
    scratch = context.workspace.scratch
    pairs = lane_moves.with_lanes(repeated_ids.pairs(repeated, ranked, number), context.grown, rings)
    pairs = scratch("pairs", pairs)  # several later steps read the pairs
    regrouped = any(item.regroups for item in rings)
    passed = lane_moves.with_passed(pairs, ids, regrouped=regrouped)
    between = scratch("pairs_between", repeated_ids.between(passed))
    sizes = F.least(by_lane(context.promised), by_lane(context.promised, "a_lane"))
    judged = repeated_ids.promised(between, events, context.rules, sizes)
    inputs = [address.input_topic for address in context.workspace.frames.addresses]
    by_id = [
        with_groups(found, context.evidence)
        for found in (
            repeated_ids.remembered(judged),
            repeated_ids.cross_lane(repeated, number, context.rules, inputs),
        )
    ]
    return by_id if of_hops is None else [bridge_hops.others(found, of_hops) for found in by_id]
