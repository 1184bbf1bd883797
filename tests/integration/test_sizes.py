"""Rings that change their size: nothing inside the smaller promise is forgotten, nothing evicted comes back."""

import json
from pathlib import Path
from typing import Any

import pytest

from agents.lane.lane import Lane, LaneState
from tables import codec
from tables.table import LaneTable
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.lanes import Bench, Group, bench, ids, until


class Sizes:
    """One lane after the other, each with a size of its own, over one input."""

    def __init__(self, lanes: Bench, *, lose_disk: bool) -> None:
        self.lanes = lanes
        self._lose_disk = lose_disk
        self._sent = 0
        self._folders = 0

    async def open(self, size: int, **more: Any) -> Lane:
        """A lane of this size; on a new disk each time, if that is the case."""
        self._folders += self._lose_disk
        lane = self.lanes.lane(f"disk-{self._folders}", id_cache_size=size, **more)
        lane.start(Group())
        await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")
        return lane

    async def reopen(self, lane: Lane, size: int, **more: Any) -> Lane:
        """The next lane, once this one is closed."""
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
    """Which of these IDs the ring knows."""
    return [number for number in numbers if not table.check([b"\x00%d" % number], [0]).new_ids]


@pytest.mark.parametrize("lose_disk", [False, True], ids=["same disk", "lost disk"])
async def test_shrink_keeps_the_newest(bootstrap: str, tmp_path: Path, lose_disk: bool) -> None:
    """10 → 4: the newest four stay known, with and without accepts in between."""
    async with bench(bootstrap, tmp_path) as lanes:
        sizes = Sizes(lanes, lose_disk=lose_disk)
        lane = await sizes.open(10)
        await sizes.feed(lane, *range(10))
        lane = await sizes.reopen(lane, 4)

        assert await sizes.feed(lane, 6, 7, 8, 9) == []
        assert await sizes.feed(lane, 5) == [5]
        assert await sizes.feed(lane, 7, 8, 9, 5, 6) == [6]


@pytest.mark.parametrize("lose_disk", [False, True], ids=["same disk", "lost disk"])
async def test_grow_loses_nothing(bootstrap: str, tmp_path: Path, lose_disk: bool) -> None:
    """4 → 10 with three accepts in between and a restart: exactly what the running ring held."""
    async with bench(bootstrap, tmp_path) as lanes:
        sizes = Sizes(lanes, lose_disk=lose_disk)
        lane = await sizes.open(4)
        await sizes.feed(lane, *range(6))
        lane = await sizes.reopen(lane, 10)
        assert await sizes.feed(lane, 6, 7, 8) == [6, 7, 8]
        running = known(lane.opening.table, range(20))
        lane = await sizes.reopen(lane, 10)
        rebuilt = known(lane.opening.table, range(20))

        assert running == rebuilt == [2, 3, 4, 5, 6, 7, 8]
        assert await sizes.feed(lane, 1) == [1]


@pytest.mark.parametrize("lose_disk", [False, True], ids=["same disk", "lost disk"])
async def test_shrink_then_grow_brings_nothing_back(bootstrap: str, tmp_path: Path, lose_disk: bool) -> None:
    """10 → 4 → 10: what the small ring evicted stays evicted, whatever is still in the changelog."""
    async with bench(bootstrap, tmp_path) as lanes:
        sizes = Sizes(lanes, lose_disk=lose_disk)
        lane = await sizes.open(10)
        await sizes.feed(lane, *range(10))
        lane = await sizes.reopen(lane, 4)
        await sizes.feed(lane, 10, 11, 12)
        lane = await sizes.reopen(lane, 10)

        assert known(lane.opening.table, range(20)) == [9, 10, 11, 12]
        assert await sizes.feed(lane, 0, 8, 9, 12) == [0, 8]


async def test_workers_of_different_sizes(bootstrap: str, tmp_path: Path) -> None:
    """During a rolling change a lane wanders between sizes: the smaller promise holds throughout."""
    async with bench(bootstrap, tmp_path) as lanes:
        sizes = Sizes(lanes, lose_disk=True)
        accepted: list[int] = []
        for step, size in enumerate([8, 3, 8, 3, 8, 3]):
            lane = await sizes.open(size)
            fresh = list(range(step * 5, step * 5 + 5))
            newest = accepted[-3:]
            assert await sizes.feed(lane, *newest, *fresh) == fresh
            accepted += fresh
            await lane.dispose()


async def test_slots_of_an_earlier_size_are_removed(bootstrap: str, tmp_path: Path) -> None:
    """Once nothing of the earlier capacity is alive, its slots get tombstones: the changelog stays bounded."""
    async with bench(bootstrap, tmp_path) as lanes:
        sizes = Sizes(lanes, lose_disk=False)
        lane = await sizes.open(6)
        await sizes.feed(lane, *range(6))
        lane = await sizes.reopen(lane, 4)
        await sizes.feed(lane, *range(6, 12))
        table = lane.opening.table
        capacities = {codec.decode_ring(*slot).capacity for slot in table._opened().slots()}

        assert table.meta is not None
        assert table.meta.older == []
        assert capacities == {4}


async def test_memory_only_ring_forgets(bootstrap: str, tmp_path: Path) -> None:
    """persist_id_cache = false: detected while the lane is open, forgotten at every opening, nothing in the changelog."""
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


async def test_age_survives_a_restart(bootstrap: str, tmp_path: Path) -> None:
    """The age of an ID is that of its original's record, also after the ring was restored."""
    async with bench(bootstrap, tmp_path, id_max_age=10) as lanes:
        start = 1_700_000_000_000
        lanes.send(*(Sent(b"a", b"g", timestamp=start + number) for number in (0, 9_000, 10_000, 11_000)))
        for begin in range(4):
            lane = await lanes.opened(f"disk-{begin}")
            await lanes.feed(lane, begin, begin + 1)
            await lane.dispose()

        assert [item.timestamp - start for item in lanes.output()] == [0, 11_000]


async def test_coverage_in_seconds(bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The ring says how many seconds it reaches back, in the log and to who asks."""
    caplog.set_level("INFO", "ringfence")
    async with bench(bootstrap, tmp_path, id_cache_size=3) as lanes:
        lanes.send(
            *(Sent(b"%d" % index, b"g", timestamp=1_700_000_000_000 + 7_000 * index) for index in range(5))
        )
        lane = await lanes.opened()
        await lanes.feed(lane, 0, 5)
        covered = lane.seconds_covered()
        await lane.dispose()
        await lanes.opened("again")

        assert covered == 14.0
        assert "ring 3 of 3 covering 14 s" in caplog.text


async def test_expired_group_offsets(bootstrap: str, tmp_path: Path) -> None:
    """The group's offsets are gone and the changelog remains: its ``next`` decides, and nothing is repeated."""
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


async def test_expired_group_offsets_of_both_inputs(bootstrap: str, tmp_path: Path) -> None:
    """The changelog says how far the lane is in input and forward topic, whichever its last batch came from."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*(Sent(None, b"g", b"%d" % index) for index in range(10)))
        forwarded = [
            Sent(
                None,
                b"g",
                b"f",
                (("_RF_SOURCE", f"{lanes.name}/1/{index}".encode()), ("_RF_TIMESTAMP", bytes(8))),
            )
            for index in range(5)
        ]
        kafka.send(bootstrap, lanes.forward, forwarded)
        lane = await lanes.opened()
        await lanes.feed(lane, 0, 10)
        await lane.offer(await lanes.fetch(0, 5, topic=lanes.forward))
        await until(lambda: lane.cursors[lanes.forward].next == 5, lambda: f"{lane.state}: {lane.reason}")
        await lane.dispose()
        lanes.delete_group()
        lane = await lanes.opened("again")

        assert {topic: cursor.next for topic, cursor in lane.cursors.items()} == {
            lanes.name: 10,
            lanes.forward: 5,
        }


async def test_the_journal_tells_before_the_first_decision(bootstrap: str, tmp_path: Path) -> None:
    """A change of size, and each opening of a ring in memory only, is written down with the offsets that it lies between."""
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
