"""Inputs beside what came of them, in files: the evidence that everything else reads."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reconcile.run.frames import evidence as ev
from reconcile.run.frames import hops, transactions
from reconcile.run.frames.workspace import Workspace
from reconcile.run.history.history import Run


def matched(
    desk: Workspace, base: Run | None, events: DataFrame | None
) -> tuple[DataFrame, DataFrame | None]:
    """Matched once, kept in files: what is judged later reads the columns that it needs; and :func:`_with_hops`."""
    ahead = desk.frames.ahead(base)
    matched = ev.attribute(
        desk.frames.inputs(base),
        desk.frames.forwards(ahead),
        desk.frames.outputs(ahead),
        desk.frames.forward_committed(),
        waited=desk.frames.carries(base),
    )
    evidence = desk.scratch("evidence", matched)
    of_units, of_hops = (F.count_if(F.expr(name)) for name in (transactions.OF_UNITS, hops.OF_HOPS))
    [(envelopes, bridged_ones)] = evidence.agg(of_units, of_hops).collect()
    if envelopes:
        evidence = _with_units(desk, evidence)
    return _with_hops(desk, evidence, base, events, there=bridged_ones > 0)


def _with_units(desk: Workspace, matched: DataFrame) -> DataFrame:
    """The evidence, in which envelopes and their parts know of one another."""
    envelopes = matched.where(transactions.OF_UNITS)
    joined = desk.scratch("units", transactions.joined(envelopes).unionByName(transactions.as_plain(matched)))
    return matched.where(f"not ({transactions.OF_UNITS})").unionByName(joined)


def _with_hops(
    desk: Workspace, evidence: DataFrame, base: Run | None, events: DataFrame | None, *, there: bool
) -> tuple[DataFrame, DataFrame | None]:
    """The evidence, in which what came over bridges is told apart by what its lane knew of hops; and that, where there are any."""
    kept = desk.frames.hops(base)
    if kept is None and not there:
        return evidence, None
    followed = desk.scratch("hops", hops.followed(evidence.where(hops.OF_HOPS), kept, events))
    others = evidence.where(~F.coalesce(F.expr(hops.OF_HOPS), F.lit(False)))
    return others.unionByName(hops.evidence_of(followed)), followed
