"""Progress of a consumer: the messages that a restart repeats, and the offset that counts."""

import asyncio
from typing import Any

import pytest

from ringfence_client import Message, Reject
from ringfence_kafka.process import failpoints
from tests.support import kafka
from tests.support.consumers.in_process import Recorder, consuming, interleaved, numbered
from tests.support.kafka import Sent
from tests.support.lanes import LIMIT_S, planted, until

MOVED = "was moved from"


async def test_offset_moved_by_an_operator(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """An offset that somebody set while the group was stopped counts, back and forth, and is logged."""
    handler = Recorder()
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 10))
        await bench.handle(handler, 10)
        kafka.commit(bench.bootstrap, bench.group, bench.accepted, 4)
        handler.done.clear()
        handler._last.clear()
        await bench.handle(handler, 10)

        assert handler.offsets == [4, 5, 6, 7, 8, 9]
        assert f"{MOVED} 10 to 4" in caplog.text
        assert (await bench.agreed()).next == 10

        bench.send(*numbered(b"group", 5))
        kafka.commit(bench.bootstrap, bench.group, bench.accepted, 13)
        running = await bench.start(handler)
        await bench.until_next(running, 15)

        assert handler.offsets == [4, 5, 6, 7, 8, 9, 13, 14]


@pytest.mark.parametrize("runs", [False, True], ids=["stopped", "running"])
async def test_retention(bootstrap: str, caplog: pytest.LogCaptureFixture, runs: bool) -> None:
    """Messages that retention deleted unprocessed are a GAP in the log; the rest is processed, or known as done."""
    gate = asyncio.Event()

    async def work(message: Message) -> None:
        if message.offset < 5:
            await gate.wait()

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        bench.send(*(Sent(None, b"%d" % index) for index in range(40)))
        # A small window: most is not fetched when it is deleted.
        options: dict[str, Any] = {
            "concurrency": 5,
            "records_max": 5,
            "drain_timeout": 0.2 if not runs else 10,
        }
        running = await bench.start(handler, **options)
        await until(lambda: len(handler.begun) == 5, lambda: str(handler.begun))
        if runs:
            kafka.delete_before(bootstrap, bench.accepted, 25)
            gate.set()
        else:
            await running.stop()
            kafka.delete_before(bootstrap, bench.accepted, 25)
            gate.set()
            running = await bench.start(handler, **options)
        await bench.until_next(running, 40)
        await running.stop()

        begun = {offset for _, offset, _ in handler.begun}
        # One fetch may have been on its way, whole, when it was deleted.
        assert begun >= {0, 1, 2, 3, 4, *range(25, 40)}
        assert len(handler.done) == len(set(handler.done))
        assert "GAP" in caplog.text
        assert running.consumer.dispatcher.counts["gap_records"] > 0
        assert MOVED not in caplog.text
        assert (await bench.agreed()).next == 40


@pytest.mark.parametrize("deleted", [0, 7])
async def test_beginning_that_is_gone(bootstrap: str, caplog: pytest.LogCaptureFixture, deleted: int) -> None:
    """A new group begins at the start of the log; deleted records below are a GAP with their largest possible number."""
    handler = Recorder()
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 10))
        if deleted:
            kafka.delete_before(bootstrap, bench.accepted, deleted)
        await bench.handle(handler, 10)
        gaps = [message for message in caplog.messages if message.startswith("GAP: ")]
        running = await bench.start(handler)
        await bench.until_next(running, 10)

        assert handler.offsets == list(range(deleted, 10))
        assert len(gaps) == (1 if deleted else 0)
        assert all(f"begins at {deleted}" in gap and f"up to {deleted} messages" in gap for gap in gaps)
        assert caplog.text.count("GAP: ") == len(gaps)
        assert running.consumer.dispatcher.counts["gap_records"] == 0


async def test_progress_that_cannot_be_written(bootstrap: str) -> None:
    """Handlers continue while progress cannot be written, until somebody might take the lease; then all their work is written."""
    handler, writes = Recorder(), 0

    async def fail(_point: str, _lane: str) -> None:
        nonlocal writes
        writes += 1
        if writes <= 4:
            raise OSError("planted")

    async with consuming(bootstrap) as bench:
        running = await bench.start(handler, lease_timeout=60.0, lease_idle=60.0)
        with planted("before-commit", bench.lease_name(), fail):
            bench.send(*interleaved(10, 20))
            await until(lambda: len(handler.done) == 200, lambda: str(len(handler.done)))

            assert writes < 4

            await until(lambda: writes >= 4, lambda: str(writes))
        await running.stop()

        assert sorted(handler.offsets) == list(range(200))
        assert (await bench.agreed()).next == 200


async def test_written_on_many(bootstrap: str) -> None:
    """Progress is written after a number of acknowledgements, even if the interval is far away."""
    handler = Recorder()
    async with consuming(bootstrap) as bench:
        running = await bench.start(handler, ack_interval=3600.0, ack_count=50)
        for round_number in (1, 2):
            bench.send(*numbered(b"group", 100))
            await bench.until_next(running, 100 * round_number)
            deadline = asyncio.get_running_loop().time() + LIMIT_S
            # The last few of the round may have to wait for more.
            while await bench.committed() < 100 * round_number - 50:
                assert asyncio.get_running_loop().time() < deadline


async def test_dead_letter_and_progress_are_one(bootstrap: str) -> None:
    """A visible dead letter has a finished message: no death between them makes a second one."""
    passed = 0
    hold = asyncio.Event()

    async def one(point: str, lane: str) -> None:
        nonlocal passed
        passed += 1
        if passed > 1:
            await hold.wait()

    async def reject(message: Message) -> None:
        if message.offset == 0:
            failpoints.install("before-send", bench.lease_name(), one)
            raise Reject("planted")
        await asyncio.Event().wait()

    handler = Recorder(reject)
    async with consuming(bootstrap) as bench:
        running = await bench.start(handler, ack_interval=3600.0, drain_timeout=0.2)
        bench.send(*numbered(b"group", 2))
        try:
            await asyncio.to_thread(kafka.wait_count, bootstrap, bench.dead_letters, 1)

            assert (await bench.agreed()).next == 1
        finally:
            failpoints.install("before-send", bench.lease_name(), one)()
            hold.set()
        await running.stop()

        assert len(await bench.letters()) == 1
