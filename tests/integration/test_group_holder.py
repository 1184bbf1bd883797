"""Who holds a partition begins nothing that a waiter might take, and keeps what nobody took."""

import asyncio
import time
from typing import Any

import pytest

from ringfence_client import Message
from ringfence_kafka import clock
from ringfence_kafka.process import failpoints
from tests.support.consumers.in_process import Recorder, consuming, numbered
from tests.support.consumers.leases import JumpingClock, Outsider, SleepingClock, take
from tests.support.kafka import Sent
from tests.support.lanes import until


@pytest.fixture
def wall_clock_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back: what would lengthen the time of who holds."""
    monkeypatch.setattr(clock, "time", JumpingClock(-3600))


async def _begins(handler: Recorder) -> None:
    await until(lambda: bool(handler.begun), lambda: "nothing is begun")


async def test_spurious_fences(bootstrap: str) -> None:
    """Whoever fences and writes nothing, such as a waiter that was late, costs the holder no message and no token."""

    async def work(message: Message) -> None:
        await asyncio.sleep(0.02)

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        running = await bench.start(handler)
        bench.send(*numbered(b"group", 100), *numbered(b"other", 100))
        for fences in range(1, 5):
            await until(
                lambda aim=fences * 30: len(handler.done) >= aim,  # type: ignore[misc]
                lambda: str(len(handler.done)),
            )
            async with Outsider(bench):
                pass
        await bench.until_next(running, 200)
        await running.stop()

        assert handler.wrong == []
        assert len(handler.begun) == len(handler.done) == 200
        assert {(message.attempt, message.fence) for message in handler.messages} == {(1, 1)}
        assert (await bench.agreed()).token == 1


async def test_idle_holder_writes_before_it_begins(bootstrap: str) -> None:
    """After a rest of half of the idle time-out a message is begun when it is written that it is, and not before."""
    written: list[tuple[int, int, dict[int, int]]] = []

    async def look(message: Message) -> None:
        progress = await bench.progress()
        assert progress is not None
        written.append((progress.delivered, progress.running, dict(progress.attempts)))

    async with consuming(bootstrap) as bench:
        running = await bench.start(Recorder(look))
        for offset in range(3):
            writer = running.consumer.partitions[0].writer
            await until(lambda: not writer.covers(), lambda: "its lease never runs out")  # noqa: B023
            bench.send(Sent(None, b"group", b"v"))
            await bench.until_next(running, offset + 1)

    assert written == [(offset + 1, 1, {offset: 1}) for offset in range(3)]


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


async def test_answer_that_comes_late(bootstrap: str) -> None:
    """A write whose answer takes longer than it covers is no leave to begin: another one has to come first."""
    late_s, covered = 0.5, []

    async def look(message: Message) -> None:
        covered.append(holder.covers())

    async with consuming(bootstrap) as bench:
        running = await bench.start(Recorder(look))
        holder = running.consumer.partitions[0].writer
        await until(lambda: not holder.covers(), lambda: "its lease never runs out")
        holder._timeout = late_s
        transact = holder._producer.transact

        async def late_once(*args: Any) -> list[int]:
            holder._producer.transact = transact  # type: ignore[method-assign]
            bases = await transact(*args)
            await asyncio.sleep(late_s)
            return bases

        holder._producer.transact = late_once  # type: ignore[method-assign, assignment]
        bench.send(*numbered(b"group", 1))
        await bench.until_next(running, 1)

    assert covered == [True]


async def test_answer_that_never_comes(bootstrap: str) -> None:
    """A write that says that nothing runs may count although nobody said so: what is begun after it must be written first."""

    async def lose(point: str, lane: str) -> None:
        raise OSError("planted")

    handler = Recorder()
    async with consuming(bootstrap) as bench:
        running = await bench.start(handler, lease_timeout=300.0, lease_idle=0.4)
        holder = running.consumer.partitions[0].writer
        await until(lambda: not holder.covers(), lambda: "its lease never runs out")
        free = asyncio.Event()

        async def work(message: Message) -> None:
            await free.wait()

        handler.behaviour = work
        bench.send(*numbered(b"group", 1))
        await _begins(handler)

        assert holder.covers()  # for 150 s

        remove = failpoints.install("before-commit", bench.lease_name(), lose)
        try:
            free.set()
            await until(
                lambda: not holder.covers(), lambda: "what was written last may say that nothing runs"
            )
        finally:
            remove()
