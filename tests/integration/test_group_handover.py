"""Partitions that go and come while messages run: nothing runs twice at once, order is kept, nothing hangs."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import NotCoordinatorForGroupError
from aiokafka.protocol.group import HeartbeatRequest

from tests.support.consumers.held_handler import Held
from tests.support.consumers.in_process import Recorder, consuming, interleaved, numbered
from tests.support.lanes import until

TIMEOUT_S = 3.0


@pytest.mark.parametrize("kind", ["async", "thread", "stubborn"])
async def test_member_comes_and_goes(bootstrap: str, kind: str) -> None:
    """A second member comes and leaves while messages run: nothing is lost, and no one runs a message beside itself.

    What cannot be ended keeps its partition from the second member for the whole of the lease's time-out.
    """
    first, second = Held(kind), Held("async")
    second.free.set()
    async with consuming(bootstrap, 2) as bench:
        for partition in range(2):
            bench.send(*interleaved(3, 4), partition=partition)
        one = await bench.start(first.handler, concurrency=6, drain_timeout=0.3)
        await until(lambda: len(first.recorder.done) == 16, lambda: str(first.recorder.done))
        two = bench.launch(second.handler, lease_timeout=TIMEOUT_S)
        await until(
            lambda: bool(two.consumer.held_partitions.assigned), lambda: "the second is assigned nothing"
        )
        other = next(iter(two.consumer.held_partitions.assigned or ()))
        await until(lambda: other not in one.consumer.partitions, lambda: "it is not let go")
        begun = time.monotonic()
        await two.ready(1)
        await one.ready(1)

        assert kind == "async" or time.monotonic() - begun > TIMEOUT_S / 2

        # Nobody else waits for what is left of a former holder: the fence keeps its end from counting.
        await bench.until_next(two, 12, other)
        await two.stop()
        await one.ready(2)
        again = one.consumer.partitions[1 - other].window
        # Until its turn has come again: a run that ends before is not known to be the same.
        if kind != "async":
            await until(lambda: any(group.acquired for group in again.groups()), lambda: str(again.counts))
        first.free.set()
        for partition in range(2):
            await bench.until_next(one, 12, partition)
        await one.stop()

        assert first.recorder.wrong == second.recorder.wrong == []
        kept = [
            attempt
            for partition, offset, attempt in first.recorder.begun
            if (partition, offset) == (1 - other, 0)
        ]
        assert kept == [1]
        assert [(await bench.agreed(index)).next for index in range(2)] == [12, 12]
        assert await bench.letters() == []


async def test_coordinator_away_while_opening(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that cannot say whether we are a member has not said that we are none: it is asked again."""
    original = GroupCoordinator._send_req
    planted = 0

    async def away_once(self: Any, request: Any) -> Any:
        nonlocal planted
        response = await original(self, request)
        if isinstance(request, HeartbeatRequest) and not planted:
            planted += 1
            return SimpleNamespace(error_code=NotCoordinatorForGroupError.errno)
        return response

    monkeypatch.setattr(GroupCoordinator, "_send_req", away_once)
    handler = Recorder()
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 3))
        # Heartbeats of its own come later than those of the opening.
        running = await bench.start(handler, session_timeout=30.0)
        await bench.until_next(running, 3)

        assert planted == 1
