"""Matches inputs with outputs, and writes the evidence that all later steps read."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reconcile.run.frames import evidence as ev
from reconcile.run.frames import hops, ring_numbers, transactions
from reconcile.run.frames.workspace import Workspace


def matched(workspace: Workspace, events: DataFrame | None) -> tuple[DataFrame, DataFrame | None]:
    """Return the evidence, and :data:`reconcile.spark.schemas.FOLLOWED`, or None without bridged records."""
    frames = workspace.frames
    ahead = frames.ahead()
    matched = ev.attribute(
        frames.inputs(),
        frames.forwards(ahead),
        frames.outputs(ahead),
        frames.forward_committed(),
        waited=frames.carries(),
        ring=ring_numbers.of_inputs(frames.ring_numbers()),
    )
    evidence = workspace.scratch("evidence", matched)
    of_units, of_hops = (F.count_if(F.expr(name)) for name in (transactions.OF_UNITS, hops.OF_HOPS))
    [(envelopes, bridged)] = evidence.agg(of_units, of_hops).collect()
    if envelopes:
        joined = transactions.joined(evidence.where(transactions.OF_UNITS))
        units = workspace.scratch("units", joined.unionByName(transactions.as_plain(evidence)))
        evidence = evidence.where(f"not ({transactions.OF_UNITS})").unionByName(units)
    kept = frames.hops()
    if kept is None and not bridged:
        return evidence, None
    rings = frames.ring_numbers()
    present = ring_numbers.present(rings) if any(item.regroups for item in rings) else None
    followed = hops.followed(evidence.where(hops.OF_HOPS), kept, events, present)
    followed = workspace.scratch("hops", followed)
    others = evidence.where(~F.coalesce(F.expr(hops.OF_HOPS), F.lit(False)))
    return others.unionByName(hops.evidence_of(followed)), followed
