"""Looks for anomalies in the evidence: which of them have something to look at, and what each is given."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.anomalies.finders import (
    bridge_hops,
    fates,
    lane_moves,
    lost_inputs,
    order,
    originals,
    repeated_ids,
    torn_transactions,
)
from reconcile.anomalies.names import Anomaly, rows
from reconcile.run.frames import hops
from reconcile.run.frames.evidence import FIRST, PLACE
from reconcile.run.frames.workspace import Workspace
from reconcile.run.history.history import Run
from reconcile.run.measures import candidates as candidate
from reconcile.run.measures.counts import Judgement
from reconcile.run.measures.resend_distance import among, by_lane
from reconcile.run.verdict import orphan_outputs
from reconcile.spark.schemas import ANOMALIES, EVIDENCE
from reconcile.spark.topic_reader import concatenated


def orphans(
    desk: Workspace,
    evidence: DataFrame,
    those: DataFrame,
    ids: DataFrame,
    rules: DataFrame,
    events: DataFrame | None,
    grown: DataFrame | None,
    found: Judgement,
) -> DataFrame:
    """What is not accepted, and a duplicate of nothing; ``those``: of the IDs those that are there several times."""
    if not found.suspects[candidate.REPEATING]:
        return evidence.where(F.lit(False))
    candidates = evidence.where(originals.REPEATING)
    heirs = originals.with_heirs(those, grown)
    alone = desk.scratch(
        "without_near", originals.without_near(candidates, heirs, rules, events, desk.number)
    )
    if not alone.isEmpty():
        alone = desk.scratch(
            "without_original", originals.without_original(alone, heirs, events, desk.number)
        )
    if alone.isEmpty():
        return alone.select(*EVIDENCE.names)
    orphans = originals.orphans(alone, heirs, ids, events, desk.number).select(*EVIDENCE.names)
    return desk.scratch("orphans", originals.of_units(orphans))


def anomalies(
    desk: Workspace,
    evidence: DataFrame,
    ids: DataFrame,
    orphans: DataFrame,
    several: DataFrame | None,
    events: DataFrame | None,
    grown: DataFrame | None,
    rules: DataFrame,
    chain: list[Run],
    found: Judgement,
    again: DataFrame | None,
    promised: Sequence[Mapping[int, int]],
    blocks: DataFrame | None,
) -> list[DataFrame]:
    """:data:`reconcile.spark.schemas.ANOMALIES`, in a few frames: what has nothing to look at is left out.

    Args:
        desk: Of the night.
        evidence: As :func:`reconcile.run.frames.match.matched` has it.
        ids: :data:`reconcile.spark.schemas.IDS` of this night and those before.
        orphans: As :func:`orphans` has them.
        several: Those of IDs that were accepted several times; None = there are none.
        events: :data:`reconcile.spark.schemas.EVENTS`; None = there are none.
        grown: Those that tell of more lanes.
        rules: :data:`reconcile.spark.schemas.RULES`.
        chain: Nights that this one goes on from, the latest first.
        found: What was counted.
        again: As :func:`again` has it.
        promised: The ring's size: of each address lane → IDs.
        blocks: :func:`reconcile.run.frames.id_positions.blocks`; None = there are none.
    """
    spans = desk.frames.spans()
    there = found.suspects
    looked_at = [rows(desk.frames.gaps(), Anomaly.GAP, F.col("text"))]
    if there[candidate.SECOND]:
        looked_at.append(fates.doubled(evidence))
    if there[candidate.STRAY]:
        of_strays = (fates.doubled_later, fates.phantom, fates.beyond_memory)
        found_there = desk.scratch("strays", concatenated([stray(evidence, spans) for stray in of_strays]))
        looked_at.append(orphan_outputs.with_names(desk.frames, found_there))
    if there[candidate.CHANGED]:
        looked_at.append(fates.corrupted(evidence))
    if there[candidate.UNREAD]:
        looked_at.append(bridge_hops.unread(evidence))
    transactions = found.total("parts") > 0
    if transactions:
        topics = [address.accepted_topic for address in desk.frames.addresses]
        looked_at.append(torn_transactions.torn(evidence, rules, topics))
    verdicts = []
    if there[candidate.UNMATCHED]:
        verdicts.append(lost_inputs.lost(lost_inputs.unmatched(evidence), orphans, rules))
    if there[candidate.SAID_TO_REPEAT] or there[candidate.REPEATING]:
        verdicts.append(lost_inputs.wrong_verdict(orphans, evidence, rules))
    frames = [concatenated(item) for item in (looked_at, verdicts) if item]
    frames += _reordered(evidence, found, blocks)
    base = chain[0] if chain else None
    if desk.frames.carries(base):
        left = desk.frames.left(base)
        last = desk.frames.ids([night for night in chain if night.number in left])
        frames.append(order.reordered_across(evidence, last, spans, desk.frames.accepted_spans()))
    if several is not None:
        ranked = repeated_ids.ranks(ids, several.select("address", "lane").distinct())
        pairs = lane_moves.with_lanes(repeated_ids.pairs(several, ranked, desk.number), grown)
        between = repeated_ids.between(lane_moves.with_passed(pairs, ids))
        sizes = F.least(by_lane(promised), by_lane(promised, "a_lane"))
        judged = repeated_ids.promised(between, events, rules, sizes)
        inputs = [address.input_topic for address in desk.frames.addresses]
        found_by_id = (
            repeated_ids.remembered(judged),
            repeated_ids.cross_lane(several, desk.number, rules, inputs),
        )
        by_id = [with_groups(data_frame, evidence) for data_frame in found_by_id]
        frames += by_id if again is None else [bridge_hops.others(data_frame, again) for data_frame in by_id]
    return frames if again is None else [again, *frames]


def with_groups(found: DataFrame, evidence: DataFrame) -> DataFrame:
    """Anomalies of inputs of this night with their groups: of IDs that are kept only a digest of it is."""
    groups = evidence.where(FIRST).select(*PLACE, F.col("group").alias("of_input"))
    both = found.drop("group").join(groups, on=PLACE, how="left")
    return both.withColumnRenamed("of_input", "group").select(*ANOMALIES.names)


def _reordered(evidence: DataFrame, found: Judgement, blocks: DataFrame | None) -> list[DataFrame]:
    """What is out of order; nothing where a look at whole partitions shows that they are in order."""
    if blocks is not None and not found.total("forwarded") and not order.looked_for(evidence, blocks):
        return []
    return [order.reordered(evidence, transactions=found.total("parts") > 0)]


def without_lost(
    desk: Workspace, followed: DataFrame | None, orphans: DataFrame, found: Judgement
) -> DataFrame | None:
    """What came over bridges, in which what is lost has made no hop known; ``orphans`` as :func:`orphans` has them."""
    if followed is None or not found.suspects[candidate.UNMATCHED]:
        return followed
    lost = desk.scratch("hops_lost", hops.lost(followed, orphans, among("address", found.dropping)))
    return followed if lost.isEmpty() else desk.scratch("hops_told", hops.without_lost(followed, lost))


def again(desk: Workspace, followed: DataFrame | None, promised: Column) -> DataFrame | None:
    """What is wrong with hops that were accepted again; None = nothing."""
    if followed is None:
        return None
    again = desk.scratch("hops_again", bridge_hops.again(followed, promised))
    if again.isEmpty():
        return None
    found = [bridge_hops.forgotten(again, followed), bridge_hops.apart(again, followed)]
    return desk.scratch("hops_found", concatenated(found))
