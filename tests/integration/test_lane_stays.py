"""Lanes over a rebalance: one that stays goes on with what it has; whoever had it in between is noticed."""

import asyncio
from pathlib import Path

import pytest

from agents.batch.batch import FetchedBatch
from agents.lane.assignment import Ownership
from agents.lane.lane import Lane, LaneState
from agents.lane.open import Opened
from agents.worker.lanes import Lanes
from ringfence_kafka.process import failpoints
from tests.support import kafka
from tests.support.lanes import LIMIT_S, Gate, Group, bench, ids, until


async def _goes_on(lane: Lane, group: Group) -> None:
    lane.start(group)
    await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")


async def test_goes_on_as_it_is(bootstrap: str, tmp_path: Path) -> None:
    """Nothing is restored, nobody is fenced; membership is asked for, and all is fetched again from where it is."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 20))
        lane = await lanes.opened()
        await lanes.feed(lane, 0, 10)
        opened, again = lane._opened, Group()
        await lane.suspend()
        suspended, kept = lane.state, lane.counts.copy()
        await _goes_on(lane, again)
        await lanes.feed(lane, 0, 20)

        assert suspended is LaneState.SUSPENDED
        assert lane._opened is opened
        assert (again.asked, again.rewinds) == (1, {lanes.name: [10], lanes.forward: [0]})
        assert lane.counts["accepted"] == kept["accepted"] + 10
        assert (lane.counts["fenced"], lane.counts["retries"]) == (0, 0)
        assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 20)]


async def test_begins_nothing_while_it_stands(bootstrap: str, tmp_path: Path) -> None:
    """What comes during a rebalance is dropped: whoever has the lane then fetches it."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        lane = await lanes.opened()
        await lane.suspend()
        await asyncio.wait_for(lane.offer(await lanes.fetch(0, 10)), 5)
        standing = lane.next
        await _goes_on(lane, Group())
        await lanes.feed(lane, 0, 10)

        assert standing == 0
        assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 10)]


async def test_finishes_what_is_under_way(bootstrap: str, tmp_path: Path) -> None:
    """The transaction under way ends before the group decides."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        lane = await lanes.opened()
        gate = await lanes.held(lane, "before-send", 0, 10)
        suspending = asyncio.create_task(lane.suspend())
        await asyncio.sleep(0)
        early = suspending.done()
        gate.open()
        await suspending

        assert not early
        assert lanes.committed() == 10
        assert lane.state is LaneState.SUSPENDED


async def test_somebody_had_it_in_between(bootstrap: str, tmp_path: Path) -> None:
    """A worker slept through a generation: what it knows is old. Its first transaction is refused, and nothing passes twice."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 30))
        sleeper = await lanes.opened("sleeper")
        await lanes.feed(sleeper, 0, 10)
        await sleeper.suspend()
        other = await lanes.opened("other")
        await lanes.feed(other, 10, 20)
        await other.dispose()
        lanes.send(*ids(10, 20))
        await _goes_on(sleeper, Group())
        await sleeper.offer(await lanes.fetch(10, 40))
        await until(lambda: sleeper.next >= 40, lambda: f"{sleeper.next}, {sleeper.state}: {sleeper.reason}")

        assert sleeper.counts["fenced"] == 1
        assert sleeper.counts["duplicates"] == 10
        assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 30)]


async def test_not_confirmed(bootstrap: str, tmp_path: Path) -> None:
    """The group does not know us: nothing is begun, and what is open stays so until it does."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        lane, group = await lanes.opened(), Group()
        opened = lane._opened
        group.member = False
        await lane.suspend()
        lane.start(group)
        await lane.offer(await lanes.fetch(0, 10))
        await until(lambda: group.asked >= 3, lambda: f"asked {group.asked} times")
        waits = lane.state, lane.next
        group.member = True
        await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")
        await lanes.feed(lane, 0, 10)

        assert waits == (LaneState.RETRYING, 0)
        assert lane._opened is opened


async def test_input_created_again_in_between(bootstrap: str, tmp_path: Path) -> None:
    """Offsets of another topic of that name mean nothing: the lane opens anew and begins at its start."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        lane = await lanes.opened()
        await lanes.feed(lane, 0, 10)
        await lane.suspend()
        kafka.delete_topics(bootstrap, [lanes.name])
        kafka.create_topics(bootstrap, {lanes.name: (1, {})})
        lanes.send(*ids(5, 20))
        await _goes_on(lane, Group())
        await until(lambda: lane.next == 0, lambda: f"{lane.next}")
        await lanes.feed(lane, 0, 15)

        assert lane.counts["duplicates"] == 5
        assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 20)]


@pytest.mark.parametrize("point", ["after-fence", "restoring"])
async def test_revoked_while_it_opens(bootstrap: str, tmp_path: Path, point: str) -> None:
    """An opening that nobody wants any more ends at once; the next assignment opens anew."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        gate = Gate()
        remove = failpoints.install(point, f"{lanes.name}-0", gate)
        lane = lanes.lane()
        lane.start(Group())
        await gate.wait()
        remove()
        await asyncio.wait_for(lane.suspend(), 5)
        between = lane.state
        await _goes_on(lane, Group())
        await lanes.feed(lane, 0, 10)

        assert between is LaneState.CLOSED
        assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 10)]


async def test_transaction_that_does_not_end(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left to the fence of whoever comes next, and is not waited for longer than the group waits for us."""
    monkeypatch.setattr("agents.lane.lane.DRAIN_LIMIT_S", 0.3)
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        lane = await lanes.opened()
        await lanes.held(lane, "before-commit", 0, 10)
        await asyncio.wait_for(lane.suspend(), 10)
        left = lane.state
        await _goes_on(lane, Group())
        await lanes.feed(lane, 0, 10)

        assert left is LaneState.CLOSED
        assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 10)]


async def test_worker_keeps_those_that_stay(bootstrap: str, tmp_path: Path) -> None:
    """Of a worker's lanes those go on that the new assignment names; the others are closed, and come back anew."""
    async with bench(bootstrap, tmp_path, partitions=2) as lanes:
        both = {(topic, number) for topic in (lanes.name, lanes.forward) for number in (0, 1)}
        worker = Lanes(lanes.settings, lanes.cluster)
        try:
            await worker.assigned(both, Group())
            await until(lambda: worker.ready, lambda: str(worker.report()))
            first = {lane.name: lane for lane in worker.lanes}
            opened = first[f"{lanes.name}-0"]._opened
            await worker.revoked()
            states = {lane.state for lane in worker.lanes}
            await worker.assigned({item for item in both if item[1] == 0}, Group())
            await until(lambda: worker.ready, lambda: str(worker.report()))
            (stayed,) = worker.lanes
            await worker.assigned(both, Group())
            await until(lambda: worker.ready, lambda: str(worker.report()))
            second = {lane.name: lane for lane in worker.lanes}

            assert states == {LaneState.SUSPENDED}
            assert stayed is first[f"{lanes.name}-0"]
            assert stayed._opened is opened
            assert second[f"{lanes.name}-0"] is stayed
            assert second[f"{lanes.name}-1"] is not first[f"{lanes.name}-1"]
            assert first[f"{lanes.name}-1"].state is LaneState.CLOSED
        finally:
            await worker.stop()


async def test_suspended_while_it_reads_its_batch_again(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An opening that a rebalance ends leaves no producer behind, however far it was."""
    made: list[Opened] = []
    reading = asyncio.Event()
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        lane = await lanes.opened()
        opening, failing = lane.opening.open, 1

        async def noted(ownership: Ownership) -> Opened:
            made.append(await opening(ownership))
            return made[-1]

        async def hang(held: FetchedBatch) -> FetchedBatch | None:
            reading.set()
            await asyncio.Event().wait()
            return held

        async def fail_once(point: str, lane_name: str) -> None:
            nonlocal failing
            failing -= 1
            if failing == 0:
                raise OSError("planted")

        monkeypatch.setattr(lane.opening, "open", noted)
        monkeypatch.setattr(lane.opening, "read_again", hang)
        remove = failpoints.install("before-commit", f"{lanes.name}-0", fail_once)
        try:
            await lane.offer(await lanes.fetch(0, 10))
            await asyncio.wait_for(reading.wait(), LIMIT_S)
        finally:
            remove()
        await lane.suspend()
        monkeypatch.undo()

        assert lane.state is LaneState.CLOSED
        assert [opened.producer._producer._closed for opened in made] == [True]

        await _goes_on(lane, Group())
        await lanes.feed(lane, 0, 10)
        assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 10)]
