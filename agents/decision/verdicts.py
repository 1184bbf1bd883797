"""Verdicts of a transaction: first from the hop memory, then from the ring. Neither is changed."""

from collections.abc import Sequence

from agents.decision.conflicts import check_with_values, note_values
from agents.decision.item import Fate, Item
from agents.decision.originals import Originals
from ringfence_kafka.protocol.value_digest import slot_digest
from tables.hops import NOTHING, Judged
from tables.ring import Checked, Verdict
from tables.table import LaneTable


def judge_hops(crossed: Sequence[Item], table: LaneTable) -> Judged:
    """Check the bridged records whose home is this lane, including refused ones, in the hop memory."""
    steps = [(item, item.hop) for item in crossed if item.hop is not None and item.fate is Fate.HERE]
    if not steps:
        return NOTHING
    judged = table.check_hops([hop.arrival(item.source) for item, hop in steps])
    for (item, _), known in zip(steps, judged.known, strict=True):
        item.note_arrival(known=known)
    return judged


def judge_ids(
    items: Sequence[Item], table: LaneTable, originals: Originals, *, plain: bool, by_value: bool = False
) -> Checked:
    """Return verdicts on the records whose home is this lane, in order.

    Args:
        items: The records.
        table: Table of the lane; it is read, not changed.
        originals: Originals of the batch.
        plain: Whether no record is an envelope or came over a bridge.
        by_value: Whether an ID with another value counts as another message.
    """
    times = [item.record.timestamp for item in items]
    digests = [
        0 if item.id is None or item.unit is not None else slot_digest(item.record.value) for item in items
    ]
    if by_value:
        checked = check_with_values(table.ring, [item.ids() for item in items], times, digests, originals)
    else:
        checked = note_values(_check(items, times, table, plain=plain), digests, originals)
    for number, item in enumerate(items):
        if item.resent:
            checked.verdicts[number] = Verdict.DUPLICATE
    return checked


def _check(items: Sequence[Item], times: Sequence[int], table: LaneTable, *, plain: bool) -> Checked:
    if plain:
        return table.check([item.id for item in items], times)
    ids = [item.ids() for item in items]
    if max(map(len, ids), default=0) > 1:
        return table.check_units(ids, times)
    return table.check([some[0] if some else None for some in ids], times)
