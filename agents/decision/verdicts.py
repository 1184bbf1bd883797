"""Verdicts of a batch: the hop memory is asked first, then the ring. Nothing is changed."""

from collections.abc import Collection, Mapping, Sequence
from itertools import compress

from agents.batch.batch import Record
from agents.decision.bridge_headers import BridgeHeaders
from agents.decision.envelope_parts import Unit
from tables.hops import NOTHING, Judged
from tables.ring import Checked, Verdict
from tables.table import LaneTable


def arrived(
    records: Sequence[Record],
    sources: Sequence[bytes],
    crossings: Mapping[int, BridgeHeaders],
    table: LaneTable,
) -> tuple[Judged, set[int]]:
    """What came over bridges, of what is at home here: refused or not, it has come.

    Args:
        records: In order.
        sources: Values of ``_RF_SOURCE``, one a record.
        crossings: Offset → the step over a bridge; others than those of ``records`` too.
        table: Asked.

    Returns:
        What the hop memory says, and the offsets of what came before.
    """
    if not crossings:
        return NOTHING, set()
    steps = [
        (record.offset, crossings[record.offset].arrival(source))
        for record, source in zip(records, sources, strict=True)
        if record.offset in crossings
    ]
    judged = table.check_hops([arrival for _, arrival in steps])
    return judged, {offset for offset, _ in compress(steps, judged.known)}


def judge(
    records: Sequence[Record],
    ids: Sequence[bytes | None],
    units: Mapping[int, Unit],
    crossings: Mapping[int, BridgeHeaders],
    resent: Collection[int],
    table: LaneTable,
) -> tuple[Checked, dict[int, BridgeHeaders]]:
    """Judge records that are at home here.

    Args:
        records: In order.
        ids: The encoded ID of each; of an envelope all are in its unit.
        units: Offset → what an envelope holds.
        crossings: Offset → the step over a bridge; others than those of ``records`` too.
        resent: Offsets of what came over its bridge before: a duplicate; its own IDs are not looked at, and not added.
        table: Asked.

    Returns:
        The verdicts, and the steps of these records.
    """
    times = [record.timestamp for record in records]
    if not crossings:
        return _by_ids(records, ids, units, times, table), {}
    mine = [(number, record.offset) for number, record in enumerate(records) if record.offset in crossings]
    ids, units = list(ids), dict(units)
    for number, offset in mine:
        if offset in resent or crossings[offset].ids_ignored:
            ids[number] = None
            if (unit := units.get(offset)) is not None:
                units[offset] = unit._replace(ids=())
    checked = _by_ids(records, ids, units, times, table)
    for number, offset in mine:
        if offset in resent:
            checked.verdicts[number] = Verdict.DUPLICATE
    return checked, {offset: crossings[offset] for _, offset in mine}


def _by_ids(
    records: Sequence[Record],
    ids: Sequence[bytes | None],
    units: Mapping[int, Unit],
    times: Sequence[int],
    table: LaneTable,
) -> Checked:
    if any(len(unit.ids) > 1 for unit in units.values()):
        return table.check_units(_ids_of(records, ids, units), times)
    return table.check(_one_of(records, ids, units) if units else ids, times)


def _ids_of(
    records: Sequence[Record], ids: Sequence[bytes | None], units: Mapping[int, Unit]
) -> list[Sequence[bytes]]:
    """All IDs of each message."""
    return [
        units[record.offset].ids if record.offset in units else [] if id_ is None else [id_]
        for record, id_ in zip(records, ids, strict=True)
    ]


def _one_of(
    records: Sequence[Record], ids: Sequence[bytes | None], units: Mapping[int, Unit]
) -> list[bytes | None]:
    """The ID of each message, where none has more than one."""
    return [
        next(iter(unit.ids), None) if (unit := units.get(record.offset)) is not None else id_
        for record, id_ in zip(records, ids, strict=True)
    ]
