"""Tables that a worker keeps for lanes that it does not hold."""

import weakref
from pathlib import Path
from typing import Any, cast

import pytest

from agents.batch.batch import FetchedBatch
from agents.lane.lane import Lane
from agents.lane.open import Opening
from agents.worker.lane_factory import KEPT_S, TableCache
from agents.worker.lanes import Lanes
from ringfence_kafka.config.load import validate
from tables.change import Restored, TableOptions
from tables.table import LaneTable

PLACE = ("orders", 1)


def _lanes(tmp_path: Path) -> Lanes:
    app = {"id": "rf", "data_dir": str(tmp_path)}
    return Lanes(validate({"app": app, "addresses": [{"name": "orders"}]}), cast("Any", None))


async def test_rings_are_let_go_when_their_time_is_over(tmp_path: Path) -> None:
    """Tables of lanes that left long ago are released: RocksDB is closed and memory is free. A lane that came back is not among them."""
    now = 1_000.0
    kept = TableCache(lambda: now)
    tables = [LaneTable(tmp_path / str(index), TableOptions(5, 5)) for index in range(3)]
    for number, table in enumerate(tables):
        table.ring.apply(table.ring.check([b"\0a", b"\0b"]))
        table.store.sound()
        kept.keep(("orders", number), table)
        now += KEPT_S / 2
    taken = kept.pop(("orders", 0))
    kept.keep(("orders", 0), tables[0])
    now = 1_000.0 + KEPT_S * 1.5
    await kept.forget()
    found = [(table.store.current is not None, len(cast("Any", table.ring.index))) for table in tables]
    kept.close()

    assert taken is tables[0]
    assert found == [(True, 2), (False, 0), (True, 2)]
    assert [table.store.current for table in tables] == [None] * 3


async def test_assigned_after_the_stop(tmp_path: Path) -> None:
    lanes = _lanes(tmp_path)
    await lanes.stop()
    await lanes.assigned({PLACE, ("rf-orders-forward", 1)}, cast("Any", None))

    assert lanes.lanes == []


async def test_restored_before_it_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane opens with the table that was restored in advance, or as usual if that restore failed."""
    asked: list[Opening] = []
    slowly: list[bool] = []

    async def warm_up(self: Opening) -> Restored:
        asked.append(self)
        slowly.append(lanes._factory.shared.slices.rests)
        if self.number == 2:
            raise TimeoutError
        return Restored(0, 0.0, reused=False)

    monkeypatch.setattr(Opening, "warm_up", warm_up)
    lanes = _lanes(tmp_path)
    await lanes.warm_up([PLACE, ("rf-orders-forward", 1), ("orders", 2)])
    opening, other = lanes._factory.opening(PLACE), lanes._factory.opening(("orders", 2))

    assert [opening.number for opening in asked] == [1, 2]
    assert (slowly, lanes._factory.shared.slices.rests) == (
        [True, True],
        False,
    )  # others work on them, and may need the cores
    assert opening.table is asked[0].table
    assert other.table is not asked[1].table
    assert (lanes.tables.pop(PLACE), lanes.tables.pop(("orders", 2))) == (None, None)


class Memory:
    """The memory of a batch."""

    bytes = 1
    freed = 0

    def free(self) -> None:
        self.freed += 1

    def unpack(self) -> None:
        pass


@pytest.mark.parametrize("is_held", [False, True])
async def test_memory_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_held: bool) -> None:
    lane = Lane(_lanes(tmp_path)._factory.opening(PLACE))
    memory = Memory()
    batch = FetchedBatch("orders", 1, 0, 9, [], 0, bytes=1, held=(memory,))
    gone = weakref.ref(memory)
    parts: list[list[FetchedBatch]] = [[batch], [batch], []]
    freed: list[int] = []

    async def take() -> list[FetchedBatch]:
        now = gone()
        freed.append(-1 if now is None else now.freed)
        return parts.pop(0)

    async def run(part: list[FetchedBatch], *_: Any) -> list[FetchedBatch]:
        return part if len(parts) == 2 else []

    monkeypatch.setattr(lane, "_take", take)
    monkeypatch.setattr(lane.transactions, "process", run)
    others = [memory] if is_held else []
    del batch, memory
    await lane._work(cast("Any", None), cast("Any", None))

    assert freed == [0, 0, 1 if is_held else -1]
    assert bool(others) == is_held
