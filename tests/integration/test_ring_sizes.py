"""Rings that change their size, and offsets of the group that expired."""

import json
from pathlib import Path
from typing import Any

import pytest

from agents.lane.lane import Lane, LaneState
from tables.table import LaneTable
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.lanes import Bench, Group, bench, ids, until


class Sizes:
    """A sequence of lanes over one input, each with a size of its own."""

    def __init__(self, lanes: Bench, *, lose_disk: bool) -> None:
        self.lanes = lanes
        self._lose_disk = lose_disk
        self._sent = 0
        self._folders = 0

    async def open(self, size: int, **more: Any) -> Lane:
        """Open a lane of this size; on a new disk each time, if so configured."""
        self._folders += self._lose_disk
        lane = self.lanes.lane(f"disk-{self._folders}", id_cache_size=size, **more)
        lane.start(Group())
        await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")
        return lane

    async def reopen(self, lane: Lane, size: int, **more: Any) -> Lane:
        """Close this lane and open the next one."""
        await lane.dispose()
        return await self.open(size, **more)

    async def feed(self, lane: Lane, *numbers: int) -> list[int]:
        """Send these IDs and return those that were accepted."""
        before = len(self.lanes.output())
        self.lanes.send(*(Sent(b"%d" % number, b"group") for number in numbers))
        begin, self._sent = self._sent, self._sent + len(numbers)
        await self.lanes.feed(lane, begin, self._sent)
        return [int(item.id or 0) for item in self.lanes.output()[before:]]


def known(table: LaneTable, numbers: range) -> list[int]:
    """IDs of these that the ring knows."""
    return [number for number in numbers if not table.check([b"\x00%d" % number], [0]).new_ids]


@pytest.mark.parametrize("lose_disk", [False, True], ids=["same disk", "lost disk"])
async def test_shrink_then_grow_brings_nothing_back(bootstrap: str, tmp_path: Path, lose_disk: bool) -> None:
    """A ring of 10 → 4 → 10 does not get evicted IDs back, whatever is still in the changelog."""
    async with bench(bootstrap, tmp_path) as lanes:
        sizes = Sizes(lanes, lose_disk=lose_disk)
        lane = await sizes.open(10)
        await sizes.feed(lane, *range(10))
        lane = await sizes.reopen(lane, 4)
        await sizes.feed(lane, 10, 11, 12)
        lane = await sizes.reopen(lane, 10)

        assert known(lane.opening.table, range(20)) == [9, 10, 11, 12]
        assert await sizes.feed(lane, 0, 8, 9, 12) == [0, 8]


async def test_memory_only_ring_forgets(bootstrap: str, tmp_path: Path) -> None:
    """A ring with persist_id_cache = false detects duplicates while open, forgets at every opening, and has an empty changelog."""
    async with bench(bootstrap, tmp_path) as lanes:
        sizes = Sizes(lanes, lose_disk=False)
        lane = await sizes.open(10, persist_id_cache=False)
        assert await sizes.feed(lane, 1, 2, 1) == [1, 2]
        assert await sizes.feed(lane, 1, 2) == []
        await lane.close()
        lane.start(Group())
        await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")
        assert await sizes.feed(lane, 1, 2, 1) == [1, 2]
        lane = await sizes.reopen(lane, 10)

        assert known(lane.opening.table, range(5)) == []
        assert await sizes.feed(lane, 1, 1) == [1]


async def test_expired_group_offsets(bootstrap: str, tmp_path: Path) -> None:
    """The changelog's ``next`` decides when the group's offsets have expired, and nothing is repeated."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*(Sent(None, b"g", b"%d" % index) for index in range(10)), *ids(0, 5))
        lane = await lanes.opened()
        await lanes.feed(lane, 0, 10)
        await lane.dispose()
        lanes.delete_group()
        group = Group()
        lane = await lanes.opened("again", group)

        assert lane.next == 10
        assert group.rewinds[lanes.name] == [10]
        await lanes.feed(lane, 0, 15)
        assert len(lanes.output()) == 15


async def test_the_journal_tells_before_the_first_decision(bootstrap: str, tmp_path: Path) -> None:
    """The journal has each change of size, and each opening of a ring in memory only, with the offsets around it."""
    async with bench(bootstrap, tmp_path) as lanes:
        sizes = Sizes(lanes, lose_disk=False)
        lane = await sizes.open(10)
        await sizes.feed(lane, 1, 2, 3)
        lane = await sizes.reopen(lane, 10)
        lane = await sizes.reopen(lane, 4)
        before_any_decision = _told(lanes)
        await sizes.feed(lane, 4)
        lane = await sizes.reopen(lane, 4, persist_id_cache=False)
        await sizes.feed(lane, 5)
        lane = await sizes.reopen(lane, 0, persist_id_cache=False)

        assert before_any_decision == [("resized", 10, 4, 3)]
        assert _told(lanes)[1:] == [("forgotten", 4, 4, 4), ("forgotten", 4, 0, 5)]


def _told(lanes: Bench) -> list[tuple[str, int, int, int]]:
    """Event, capacity before and after, next input offset."""
    told = [json.loads(item.value or b"") for item in kafka.read_all(lanes.bootstrap, lanes.journal, 1)]
    assert all((item["address"], item["lane"], item["format"]) == (lanes.name, 0, 1) for item in told)
    assert all(
        item["next"].keys() == item["topic_ids"].keys() == {lanes.name, lanes.forward} for item in told
    )
    return [(item["event"], item["before"], item["after"], item["next"][lanes.name]) for item in told]
