"""Who holds a partition begins nothing that a waiter might take, and keeps what nobody took."""

import asyncio
import time

import pytest

from ringfence_client import Message
from ringfence_kafka import clock
from ringfence_kafka.process import failpoints
from tests.support.consumers.in_process import Recorder, consuming, numbered
from tests.support.consumers.leases import JumpingClock, SleepingClock, take
from tests.support.kafka import Sent
from tests.support.lanes import until


@pytest.fixture
def wall_clock_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back: what would lengthen the time of who holds."""
    monkeypatch.setattr(clock, "time", JumpingClock(-3600))


async def test_holder_that_cannot_write(bootstrap: str, wall_clock_jumps: None) -> None:
    """It begins nothing any more when half of its time-out has gone; when it can write again it goes on, and repeats nothing."""
    begins: list[float] = []
    half_s = 1.5

    async def work(message: Message) -> None:
        begins.append(time.monotonic())
        await asyncio.sleep(0.02)

    async def fail(point: str, lane: str) -> None:
        raise OSError("planted")

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        running = await bench.start(handler, lease_timeout=2 * half_s, lease_idle=2 * half_s)
        bench.send(*numbered(b"group", 300))
        await until(lambda: len(begins) > 20, lambda: str(len(begins)))
        remove = failpoints.install("before-commit", bench.lease_name(), fail)
        since = time.monotonic()
        try:
            await asyncio.sleep(2 * half_s)
        finally:
            remove()
        last = max(begin for begin in begins if begin < since + 2 * half_s)
        await bench.until_next(running, 300)
        await running.stop()

        assert since < last < since + half_s + 0.1
        assert len(handler.begun) == len(handler.done) == 300
        assert {message.fence for message in handler.messages} == {1}


async def test_machine_that_slept(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who wakes begins nothing under the lease that it had: somebody has taken it, and no clock of asyncio's has moved."""
    sleeping = SleepingClock()
    monkeypatch.setattr(clock, "time", sleeping)
    handler = Recorder()
    async with consuming(bootstrap) as bench:
        running = await bench.start(handler, lease_timeout=60.0, lease_idle=60.0)
        bench.send(Sent(None, b"group"))
        await bench.until_next(running, 1)
        holder = running.consumer.partitions[0].writer

        assert holder.covers()

        await take(bench)
        sleeping.sleep(3600)

        assert not holder.covers()

        bench.send(Sent(None, b"group"))
        await until(lambda: len(handler.done) == 2, lambda: str(handler.begun))
        await running.stop()

    assert [message.fence for message in handler.messages] == [1, 3]
