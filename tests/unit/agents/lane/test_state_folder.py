"""Behaviour of a worker that cannot write its folders, on a clock that the test moves."""

from pathlib import Path

import pytest

from agents.lane import state_folder
from agents.lane.state_folder import GIVE_UP_S, IDS_IN_MEMORY_MAX, RECENT_S, USABLE_S, StateFolder
from app.worker.membership.lane_assignment import LaneTopics, deal
from tables.rocksdb.errors import StateFolderError
from tables.rocksdb.store import Store

ERROR = StateFolderError(Path("orders-0"), "no space left", "make room")


class Worker:
    """A worker whose folder the test closes and opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, others: bool) -> None:
        self.now = 0.0
        self.others = others
        self.usable = False
        self.told: list[bool] = []
        self.in_memory = 0
        self.folder = StateFolder(self._others, self.told.append, lambda: self.in_memory, lambda: self.now)
        monkeypatch.setattr(state_folder, "usable", lambda _: self.usable)

    async def _others(self) -> bool:
        return self.others

    async def failed(self, ids: int = 10) -> bool:
        return await self.folder.failed("orders-0", ids, ERROR)

    async def after(self, seconds: float) -> bool:
        self.now += seconds
        return await self.folder.check()


async def test_lanes_go_to_another_worker_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes go to another worker after a minute, and return after the folder was usable for a minute. The wait doubles each time."""
    worker = Worker(monkeypatch, others=True)
    for waits in (USABLE_S, 2 * USABLE_S):
        assert not await worker.failed()
        assert "go to other workers" in worker.folder.fault
        assert not await worker.after(GIVE_UP_S - 1)
        assert worker.told == []
        assert not await worker.after(1)
        assert worker.told == [True]
        worker.usable = True
        assert not await worker.after(RECENT_S)
        assert not await worker.after(waits - 1)
        assert await worker.after(1)
        assert worker.told == [True, False]
        assert worker.folder.fault == ""
        worker.told.clear()
        worker.usable = False


async def test_a_worker_that_is_alone_keeps_its_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is alone keeps its lanes in memory while their rings have room. Another worker that joins gets them."""
    worker = Worker(monkeypatch, others=False)

    assert await worker.failed(IDS_IN_MEMORY_MAX)
    worker.in_memory = IDS_IN_MEMORY_MAX
    assert not await worker.folder.failed("orders-1", 1, ERROR)
    assert "too large" in worker.folder.fault
    await worker.after(10 * GIVE_UP_S)
    assert worker.told == []
    worker.others = True
    await worker.after(10)
    assert worker.told == [True]


async def test_a_lane_that_fails_again_starts_the_time_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane that fails again restarts the wait: a folder that takes a small file while RocksDB finds no room is not usable."""
    worker = Worker(monkeypatch, others=False)
    worker.usable = True
    for _ in range(20):
        await worker.failed()
        assert not await worker.after(RECENT_S - 1)


@pytest.mark.parametrize(
    ("unusable", "expected"),
    [({"a"}, {"a": 0, "b": 8}), ({"a", "b"}, {"a": 4, "b": 4}), (set[str](), {"a": 4, "b": 4})],
)
def test_who_is_given_lanes(unusable: set[str], expected: dict[str, int]) -> None:
    """A worker that cannot write its state gets no lanes, unless no worker can."""
    topics = ("orders", "app-orders-forward")
    joined = {name: (f"http://{name}", topics, ()) for name in ("a", "b")}
    dealt = deal(joined, [LaneTopics(*topics)], dict.fromkeys(topics, 8), unusable)

    assert {member: len(items.get("orders", ())) for member, items in dealt.items()} == expected


def test_a_store_in_memory_leaves_the_folder_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "lane", in_memory=True)
    epoch = store.begin_epoch()
    store.write(epoch, None, lambda writes: writes.put_hops([(b"\x03key", b"value")]))

    assert list(store.slots()) == []
    assert store.unfinished
    store.close()
    assert not (tmp_path / "lane").exists()
