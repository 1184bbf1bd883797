"""What a worker keeps of lanes that it does not have."""

from pathlib import Path
from typing import Any, cast

from agents.kept_tables import KEPT_S, KeptTables
from tables.table import LaneTable, TableOptions


async def test_rings_are_let_go_when_their_time_is_over(tmp_path: Path) -> None:
    """Those of lanes that left long ago: RocksDB is closed, memory is free. One that came back is not among them."""
    now = 1_000.0
    kept: KeptTables[int] = KeptTables(lambda: now)
    tables = [LaneTable(tmp_path / str(each), TableOptions(5, 5)) for each in range(3)]
    for number, each in enumerate(tables):
        each.ring.apply(each.ring.check([b"\0a", b"\0b"]))
        each._store = each._sound_store()
        kept.keep(number, each)
        now += KEPT_S / 2
    taken = kept.take(0)
    kept.keep(0, tables[0])
    now = 1_000.0 + KEPT_S * 1.5
    await kept.forget()
    found = [(each._store is not None, len(cast("Any", each.ring.index))) for each in tables]
    kept.close()

    assert taken is tables[0]
    assert found == [(True, 2), (False, 0), (True, 2)]
    assert [each._store for each in tables] == [None] * 3
