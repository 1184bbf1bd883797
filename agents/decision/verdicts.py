"""Verdicts of a transaction: first from the hop memory, then from the ring. Neither is changed."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from agents.decision.item import Fate, Item
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.stored_ids import variant_of
from ringfence_kafka.protocol.value_digest import slot_digest
from tables.codec import Slot
from tables.hops import NOTHING, Judged
from tables.ring import Checked, Ring, Verdict
from tables.table import LaneTable

Find = Callable[[Sequence[int]], Sequence[Slot | None]]
"""Returns the committed slots of some sequence numbers."""


class Originals:
    """Originals of one batch; each slot is looked up once."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._slots: dict[int, Slot | None] = {}

    def digests(self, sequences: Iterable[int]) -> dict[int, int]:
        """Return the digests of the originals' values by sequence number; 0 = unknown."""
        return {sequence: slot.digest if slot else 0 for sequence, slot in self._looked_up(sequences).items()}

    def sources(self, sequences: Iterable[int], topic: str) -> dict[int, bytes]:
        """Return the sources of the originals whose slots exist. ``topic``: input topic of the lane."""
        return {
            sequence: wire_names.source(topic, slot.origin.partition) + b"%d" % slot.origin.offset
            for sequence, slot in self._looked_up(sequences).items()
            if slot is not None
        }

    def _looked_up(self, sequences: Iterable[int]) -> Mapping[int, Slot | None]:
        if wanted := sorted(set(sequences) - self._slots.keys()):
            self._slots.update(zip(wanted, self._find(wanted), strict=True))
        return self._slots


def judge_hops(crossed: Sequence[Item], table: LaneTable) -> Judged:
    """Check the bridged records whose home is this lane, including refused ones, in the hop memory."""
    steps = [(item, item.hop) for item in crossed if item.hop is not None and item.fate is Fate.HERE]
    if not steps:
        return NOTHING
    judged = table.hops.check([hop.arrival(item.source) for item, hop in steps])
    for (item, _), known in zip(steps, judged.known, strict=True):
        item.set_arrival(known=known)
    return judged


def judge_ids(
    items: Sequence[Item], table: LaneTable, originals: Originals, *, plain: bool, by_value: bool = False
) -> Checked:
    """Return verdicts on the records whose home is this lane, in order. The table is read, not changed.

    ``plain``: no record is an envelope or came over a bridge; ``by_value``: an ID with another value counts as another message.
    """
    times = [item.record.timestamp for item in items]
    digests = [
        0 if item.id is None or item.unit is not None else slot_digest(item.record.value) for item in items
    ]
    if by_value:
        checked = check_with_values(table.ring, [item.ids() for item in items], times, digests, originals)
    else:
        checked = add_values(_check(items, times, table, plain=plain), digests, originals)
    for number, item in enumerate(items):
        if item.resent:
            checked.verdicts[number] = Verdict.DUPLICATE
    return checked


def _check(items: Sequence[Item], times: Sequence[int], table: LaneTable, *, plain: bool) -> Checked:
    if plain:
        return table.check([item.id for item in items], times)
    ids = [item.ids() for item in items]
    if max(map(len, ids), default=0) > 1:
        return table.ring.check_units(ids, times)
    return table.check([some[0] if some else None for some in ids], times)


def add_values(checked: Checked, digests: Sequence[int], originals: Originals) -> Checked:
    """Add the digests of new IDs. A duplicate whose value differs from its original's gets the verdict CONFLICT.

    The verdicts in ``checked`` are changed. ``digests``: digest of each message's value; 0 = not compared.
    """
    if checked.owners is not None:
        new = [digests[owner] for owner in checked.owners]
    else:
        judged = zip(checked.verdicts, digests, strict=True)
        new = [digest for verdict, digest in judged if verdict is Verdict.ACCEPTED]
    first = checked.first_sequence
    known = originals.digests(each for each in checked.originals if each is not None and each < first)
    for number, (original, digest) in enumerate(zip(checked.originals, digests, strict=True)):
        if original is None or not digest:
            continue
        theirs = known[original] if original < first else new[original - first]
        if theirs and theirs != digest:
            checked.verdicts[number] = Verdict.CONFLICT
    return checked._replace(new_digests=new)


def check_with_values(
    ring: Ring,
    units: Sequence[Sequence[bytes]],
    times: Sequence[int],
    digests: Sequence[int],
    originals: Originals,
) -> Checked:
    """Return verdicts, where an ID with another value counts as another message. Changes no state.

    The first value uses the ID's slot. Each other value gets its own slot, so that it is accepted once too. ``units`` and ``times``: as for
    :meth:`tables.ring.Ring.check_units`; ``digests``: as for :func:`add_values`. The value of a message with several IDs is not compared.
    """
    if ring.capacity == 0:
        return ring.check_units(units, times)
    judged = zip(units, digests, strict=True)
    variants = [variant_of(unit[0], digest) if digest and len(unit) == 1 else None for unit, digest in judged]
    asked = list(dict.fromkeys([*(each for unit in units for each in unit), *filter(None, variants)]))
    latest = {
        id_: sequence
        for id_, sequence in zip(asked, ring.index.lookup(asked), strict=True)
        if sequence is not None
    }
    known = originals.digests(latest[unit[0]] for unit in units if len(unit) == 1 and unit[0] in latest)
    checked = Checked([], [], ring.head, [], [], owners := [], new_digests := [])
    conflicts = 0
    for number, (unit, variant, time, digest) in enumerate(zip(units, variants, times, digests, strict=True)):
        head = ring.head + len(checked.new_ids)

        def live(id_: bytes, head: int = head, time: int = time) -> int | None:
            sequence = latest.get(id_)
            is_live = sequence is not None and ring.is_live(id_, sequence, head, time, checked.new_times)
            return sequence if is_live else None

        new = list(dict.fromkeys(unit))
        original = next((sequence for each in unit if (sequence := live(each)) is not None), None)
        if variant is not None:
            if original is not None and known[original] not in (0, digest):
                original, new = None, [variant]
            if original is None:
                original = live(variant)
            conflicts += original is None and new == [variant]
        checked.originals.append(original)
        if original is not None or not unit:
            checked.verdicts.append(Verdict.UNCHECKED if original is None else Verdict.DUPLICATE)
            continue
        checked.verdicts.append(Verdict.ACCEPTED)
        for each in new:
            sequence = ring.head + len(checked.new_ids)
            latest[each], known[sequence] = sequence, digest if variant is not None else 0
            checked.new_ids.append(each)
            checked.new_times.append(time)
            owners.append(number)
            new_digests.append(known[sequence])
    return checked._replace(conflicts_accepted=conflicts)
