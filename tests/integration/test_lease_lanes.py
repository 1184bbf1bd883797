"""Lanes in rebalances: a lane that stays continues, and a cancelled opening leaves nothing behind."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from agents.lane.lane import Lane, LaneState
from agents.worker.lanes import Lanes
from tests.support import kafka
from tests.support.lanes import Gate, Group, bench, ids, until


async def _goes_on(lane: Lane, group: Group) -> None:
    lane.start(group)
    await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")


async def test_not_confirmed(bootstrap: str, tmp_path: Path) -> None:
    """A worker that the group does not know begins nothing, and keeps its open lanes until the group knows it."""
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
    """A lane opens again at its start after its input was recreated: offsets of the old topic mean nothing."""
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


async def test_worker_keeps_those_that_stay(bootstrap: str, tmp_path: Path) -> None:
    """A worker's lanes that the new assignment names continue; the others are closed, and open again later."""
    async with bench(bootstrap, tmp_path, partitions=2) as lanes:
        both = {(topic, number) for topic in (lanes.name, lanes.forward) for number in (0, 1)}
        worker = Lanes(lanes.settings, lanes.cluster)
        try:
            await worker.assigned(both, Group())
            await until(lambda: worker.health.ready, lambda: str(worker.health.report()))
            first = {lane.name: lane for lane in worker.lanes}
            opened = first[f"{lanes.name}-0"]._opened
            await worker.revoked()
            states = {lane.state for lane in worker.lanes}
            await worker.assigned({item for item in both if item[1] == 0}, Group())
            await until(lambda: worker.health.ready, lambda: str(worker.health.report()))
            (stayed,) = worker.lanes
            await worker.assigned(both, Group())
            await until(lambda: worker.health.ready, lambda: str(worker.health.report()))
            second = {lane.name: lane for lane in worker.lanes}

            assert states == {LaneState.SUSPENDED}
            assert stayed is first[f"{lanes.name}-0"]
            assert stayed._opened is opened
            assert second[f"{lanes.name}-0"] is stayed
            assert second[f"{lanes.name}-1"] is not first[f"{lanes.name}-1"]
            assert first[f"{lanes.name}-1"].state is LaneState.CLOSED
        finally:
            await worker.stop()


async def test_closed_while_its_changelog_reader_starts(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close stops the changelog reader that is starting: no connection and no task of it lives on."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 5))
        lane = await lanes.opened()
        await lanes.feed(lane, 0, 5)
        await lane.close()
        before = asyncio.all_tasks()
        gate, start = Gate(), AIOKafkaConsumer.start

        async def held(consumer: Any) -> None:
            await start(consumer)
            await gate("", "")

        monkeypatch.setattr(AIOKafkaConsumer, "start", held)
        await _close_at(lane, gate)

        await until(lambda: not asyncio.all_tasks() - before, lambda: str(asyncio.all_tasks() - before), 5)


async def test_closed_while_its_producer_is_discarded(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(bootstrap, tmp_path) as lanes:
        group, gate, stop = Group(), Gate(), AIOKafkaProducer.stop
        lane = await lanes.opened()
        await lane.close()
        before = asyncio.all_tasks()

        async def held(producer: Any) -> None:
            await gate("", "")
            await stop(producer)

        monkeypatch.setattr(AIOKafkaProducer, "stop", held)
        answers = iter([True, False])
        monkeypatch.setattr(group, "confirm", lambda: asyncio.sleep(0, next(answers)))
        await _close_at(lane, gate, group)

        await until(lambda: not asyncio.all_tasks() - before, lambda: str(asyncio.all_tasks() - before), 5)


class _Panic(BaseException):
    """A panic of RocksDB's bindings, which is not an Exception."""


@pytest.mark.parametrize("error", [asyncio.CancelledError(), _Panic("no space left")])
async def test_what_is_no_exception_ends_no_lane(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    """A lane continues after a cancelled wait or a panic of a binding, as nobody has closed it."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 5))
        lane, group = lanes.lane(), Group()
        answers = iter([error])

        async def confirm() -> bool:
            for answer in answers:
                raise answer
            return True

        group.confirm = confirm  # type: ignore[method-assign]
        lane.start(group)
        await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")
        await lanes.feed(lane, 0, 5)
        await lane.close()

    assert f"lane {lane.name}: internal error, please report" in caplog.text


async def _close_at(lane: Lane, gate: Gate, group: Group | None = None) -> None:
    lane.start(group or Group())
    await gate.wait()
    closing = asyncio.create_task(lane.close())
    await asyncio.sleep(0)  # the lane's task is cancelled now
    gate.open()
    await closing
