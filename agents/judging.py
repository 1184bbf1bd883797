"""Verdicts of a batch: the hop memory is asked first, then the ring. Nothing is changed."""

from collections.abc import Mapping, Sequence
from itertools import compress

from agents.batch import Record
from agents.crossing import Crossing
from agents.unit import Unit
from tables.hops import NOTHING, Judged
from tables.ring import Checked, Verdict
from tables.table import LaneTable


def judge(
    records: Sequence[Record],
    sources: Sequence[bytes],
    ids: Sequence[bytes | None],
    units: Mapping[int, Unit],
    crossings: Mapping[int, Crossing],
    table: LaneTable,
) -> tuple[Checked, Judged, dict[int, Crossing]]:
    """Judge records that are at home here.

    Args:
        records: In order.
        sources: Values of ``_RF_SOURCE``, one a record.
        ids: The encoded ID of each; of an envelope all are in its unit.
        units: Offset → what an envelope holds.
        crossings: Offset → the step over a bridge; others than those of ``records`` too.
        table: Asked.

    Returns:
        The verdicts, what the hop memory says, and the steps of these records. What came over its bridge before is a duplicate; its own
        IDs are not looked at, and not added.
    """
    times = [record.timestamp for record in records]
    if not crossings:
        return _by_ids(records, ids, units, times, table), NOTHING, {}
    mine = [
        (number, crossings[record.offset], sources[number])
        for number, record in enumerate(records)
        if record.offset in crossings
    ]
    judged = table.check_hops([each.arrival(source) for _, each, source in mine])
    ids, units = list(ids), dict(units)
    for (number, each, _), known in zip(mine, judged.known, strict=True):
        if known or each.ids_ignored:
            ids[number] = None
            if (unit := units.get(records[number].offset)) is not None:
                units[records[number].offset] = unit._replace(ids=())
    checked = _by_ids(records, ids, units, times, table)
    for number, _, _ in compress(mine, judged.known):
        checked.verdicts[number] = Verdict.DUPLICATE
    return checked, judged, {records[number].offset: each for number, each, _ in mine}


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
        units[record.offset].ids if record.offset in units else [] if each is None else [each]
        for record, each in zip(records, ids, strict=True)
    ]


def _one_of(
    records: Sequence[Record], ids: Sequence[bytes | None], units: Mapping[int, Unit]
) -> list[bytes | None]:
    """The ID of each message, where none has more than one."""
    return [
        next(iter(unit.ids), None) if (unit := units.get(record.offset)) is not None else each
        for record, each in zip(records, ids, strict=True)
    ]
