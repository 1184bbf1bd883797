"""The end of a consumer: nothing new is begun, what runs is waited for, and each partition is given away as soon as it can be."""

import asyncio
import logging
import time

import pytest
from aiokafka import TopicPartition

from ringfence_client import Message, Retry
from ringfence_kafka.process import failpoints
from tests.support.consumers.held_handler import Held
from tests.support.consumers.in_process import Recorder, consuming, interleaved, numbered
from tests.support.consumers.leases import take
from tests.support.lanes import until


async def test_drained(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """A stop waits for what runs, begins nothing more, not even what is held already, and says that all has ended."""
    caplog.set_level(logging.INFO)
    free = asyncio.Event()

    async def wait(message: Message) -> None:
        await free.wait()

    handler = Recorder(wait)
    async with consuming(bootstrap) as bench:
        bench.send(*interleaved(2, 6))
        running = await bench.start(handler, concurrency=2, prefetch=3, drain_timeout=20)
        await until(lambda: len(handler.begun) == 2, lambda: str(handler.begun))
        stopped = asyncio.create_task(running.stop())
        await until(lambda: running.consumer.partitions[0].draining, lambda: "it is not drained")
        free.set()
        await stopped
        progress = await bench.agreed()

        assert sorted(handler.offsets) == [0, 1]
        assert (progress.next, progress.released, progress.attempts) == (2, True, {})
        assert f"{bench.accepted}/0 is released" in caplog.text


async def test_stopped_while_it_opens(bootstrap: str) -> None:
    """From a stop on nothing new is begun, however long what was only being opened takes to end."""
    opening, free = asyncio.Event(), asyncio.Event()

    async def work(message: Message) -> None:
        await free.wait()

    async def end_late(point: str, lane: str) -> None:
        opening.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            free.set()
            await until(lambda: bool(handler.done), lambda: str(handler.begun))
            await asyncio.sleep(0.1)  # that nothing is begun is seen after a while only
            raise

    handler = Recorder(work)
    async with consuming(bootstrap, 2) as bench:
        bench.send(*numbered(b"group", 3))
        remove = failpoints.install("opening", bench.lease_name(1), end_late)
        try:
            running = bench.launch(handler)
            await until(lambda: len(handler.begun) == 1, lambda: str(handler.begun))
            await opening.wait()
            await running.stop()
        finally:
            remove()

        assert handler.offsets == [0]
        assert (await bench.agreed()).next == 1


async def test_stopped_while_it_comes_back(bootstrap: str) -> None:
    """A partition that was about to go on when everything ends is released as all others are."""
    free = asyncio.Event()

    async def work(message: Message) -> None:
        await free.wait()

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 1))
        running = await bench.start(handler, drain_timeout=300.0)
        await until(lambda: len(handler.begun) == 1, lambda: str(handler.begun))
        held_partitions, partitions = running.consumer.held_partitions, [TopicPartition(bench.accepted, 0)]
        # What aiokafka says when the group is rebalanced, twice.
        await held_partitions.revoked(partitions)
        held_partitions.given([])
        await asyncio.sleep(0)
        await until(lambda: running.consumer.partitions[0].ending, lambda: "it is not drained")
        await held_partitions.revoked(partitions)
        held_partitions.given(partitions)
        await asyncio.sleep(0)
        # And as the consumer does at its end.
        await held_partitions.close()
        free.set()
        await held_partitions.end()

        assert (await bench.agreed()).released


async def test_leaver_keeps_only_what_it_runs(bootstrap: str) -> None:
    """Who stops leaves the group at once: a slow handler holds up its own partition, and no other; what it does counts."""
    free = asyncio.Event()

    async def work(message: Message) -> None:
        if message.partition == 0 and message.fence == 1:
            await free.wait()

    handler = Recorder(work)
    async with consuming(bootstrap, 2) as bench:
        for partition in range(2):
            bench.send(*numbered(b"group", 2), partition=partition)
        leaver = await bench.start(handler, drain_timeout=300.0)
        await until(lambda: len(handler.begun) == 3, lambda: str(handler.begun))
        stopped = asyncio.create_task(leaver.stop())
        await until(lambda: leaver.consumer.partitions[0].draining, lambda: "nothing is drained")
        other = bench.launch(handler, lease_timeout=300.0, lease_idle=300.0)
        bench.send(*numbered(b"more", 1), partition=1)
        await bench.until_next(other, 3, 1)

        assert not stopped.done()
        assert other.consumer.held_partitions.assigned == {0, 1}
        assert "draining" in other.consumer.reasons[0]

        free.set()
        await bench.until_next(other, 2)
        await stopped

        assert handler.wrong == []
        assert {attempt for _, _, attempt in handler.begun} == {1}
        assert len(handler.begun) == len(handler.done) == 5


async def test_drain_ends(bootstrap: str) -> None:
    """What does not end within the drain time-out is cancelled; when that has ended it, nothing is held any more."""
    cancelled = asyncio.Event()

    async def wait(message: Message) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    handler = Recorder(wait)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 2))
        running = await bench.start(handler, drain_timeout=0.5)
        await until(lambda: len(handler.begun) == 1, lambda: str(handler.begun))
        begun = time.monotonic()
        await running.stop()
        progress = await bench.agreed()

        assert time.monotonic() - begun >= 0.5
        assert cancelled.is_set()
        assert (progress.next, progress.released, progress.attempts) == (0, True, {})


async def test_left_behind_at_the_end(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """A handler that ignores its cancellation does not hold up a stop; when it ends, nothing is left of it."""
    held = Held("stubborn")
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 2))
        running = await bench.start(held.handler, drain_timeout=0.2)
        await until(lambda: len(held.recorder.begun) == 1, lambda: str(held.recorder.begun))
        await running.stop()

        assert not (await bench.agreed()).released
        assert "is let go and not released: a handler still runs" in caplog.text

        held.free.set()
        await until(
            lambda: not any(task.get_name().startswith("handler ") for task in asyncio.all_tasks()),
            lambda: str(asyncio.all_tasks()),
            5,
        )


async def test_thread_that_hangs_keeps_no_place(bootstrap: str) -> None:
    """Of a partition that was lost and came back: its message waits for it, and the others have as many threads as before."""
    held = Held("thread")
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 1), *numbered(b"other", 1))
        running = await bench.start(held.handler, concurrency=1, drain_timeout=0.2)
        await until(lambda: len(held.recorder.begun) == 1, lambda: str(held.recorder.begun))
        await take(bench)
        bench.send(*numbered(b"third", 1))
        await until(lambda: held.recorder.offsets == [1, 2], lambda: str(held.recorder.begun))
        held.free.set()
        await bench.until_next(running, 3)

        assert held.recorder.attempts(0) == [1]


async def test_retrying_when_it_stops(bootstrap: str) -> None:
    """A message that waits for its next attempt does not hold up a stop, and goes on counting after it."""

    async def fail_once(message: Message) -> None:
        if message.attempt == 1:
            raise Retry("later", 3600)

    handler = Recorder(fail_once)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 2))
        running = await bench.start(handler, drain_timeout=30)
        await until(lambda: running.consumer.dispatcher.counts["failed"] == 1, lambda: str(handler.begun))
        begun = time.monotonic()
        await running.stop()

        assert time.monotonic() - begun < 10
        assert (await bench.agreed()).released

        handler.behaviour = Recorder().behaviour
        running = await bench.start(handler)
        await bench.until_next(running, 2)

        assert handler.attempts(0) == [1, 2]
