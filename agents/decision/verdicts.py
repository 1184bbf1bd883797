"""Verdicts of a batch: the hop memory is asked first, then the ring. Neither is changed."""

from collections.abc import Sequence

from agents.decision.item import Fate, Item
from tables.hops import NOTHING, Judged
from tables.ring import Checked, Verdict
from tables.table import LaneTable


def judge_hops(crossed: Sequence[Item], table: LaneTable) -> Judged:
    """Note what came over bridges, of what is at home here: refused or not, it has come."""
    steps = [(item, item.hop) for item in crossed if item.hop is not None and item.fate is Fate.HERE]
    if not steps:
        return NOTHING
    judged = table.check_hops([hop.arrival(item.source) for item, hop in steps])
    for (item, _), known in zip(steps, judged.known, strict=True):
        item.note_arrival(known=known)
    return judged


def judge_ids(items: Sequence[Item], table: LaneTable, *, plain: bool) -> Checked:
    """Judge records that are at home here, in order. ``plain``: none is an envelope or came over a bridge."""
    times = [item.record.timestamp for item in items]
    if plain:
        return table.check([item.id for item in items], times)
    ids = [item.ids() for item in items]
    if max(map(len, ids), default=0) > 1:
        checked = table.check_units(ids, times)
    else:
        checked = table.check([some[0] if some else None for some in ids], times)
    for number, item in enumerate(items):
        if item.resent:
            checked.verdicts[number] = Verdict.DUPLICATE
    return checked
