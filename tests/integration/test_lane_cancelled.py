"""A rebalance closes a lane while it opens: nothing of the opening stays behind."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from agents.lane.lane import Lane, LaneState
from tests.support.lanes import Gate, Group, bench, ids, until


async def test_closed_while_its_changelog_reader_starts(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader that was being started is stopped: no connection and no task of it lives on."""
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
    """A producer whose discarding is interrupted is discarded all the same."""
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
    """As RocksDB's bindings panic: no Exception."""


@pytest.mark.parametrize("error", [asyncio.CancelledError(), _Panic("no space left")])
async def test_what_is_no_exception_ends_no_lane(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    """Something that the lane waited for was cancelled, or a binding panics: nobody has closed the lane, and it goes on."""
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
