"""Conflicts: a known ID with another value. Pure.

A producer that gives two different messages the same ID loses the second one unnoticed. The slot of an ID therefore stores a digest of
its message's value.
"""

from collections.abc import Sequence

from agents.decision.originals import Originals
from ringfence_kafka.protocol.stored_ids import variant_of
from tables.ring import Checked, Ring, Verdict


def note_values(checked: Checked, digests: Sequence[int], originals: Originals) -> Checked:
    """Add the digests of new IDs. A duplicate whose value differs from its original's gets the verdict CONFLICT.

    Args:
        checked: Outcome for some messages; its verdicts are changed.
        digests: Digest of each message's value; 0 = not compared.
        originals: Originals of the batch.
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

    The first value uses the ID's slot. Each other value gets its own slot, so that it is accepted once too.

    Args:
        ring: Ring of the lane.
        units: IDs of each message, as for :meth:`tables.ring.Ring.check_units`.
        times: Record timestamps of the messages, in ms.
        digests: As for :func:`note_values`. The value of a message with several IDs is not compared.
        originals: Originals of the batch.
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
