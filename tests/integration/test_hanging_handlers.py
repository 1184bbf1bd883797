"""Handlers that hang or fail all at once because they lack a resource."""

import asyncio
import contextlib
import logging

import pytest

from ringfence_client import Message
from ringfence_client.dispatch.circuit_breaker import CircuitBreaker
from tests.support.consumers.browser import pages_of
from tests.support.consumers.held_handler import Held
from tests.support.consumers.in_process import Recorder, consuming, numbered
from tests.support.kafka import Sent
from tests.support.lanes import LIMIT_S, until

RUN = CircuitBreaker(1).run_needed
"""First attempts that open a breaker which has seen nothing yet."""


async def test_time_limit(bootstrap: str) -> None:
    """A run that takes too long is a failed attempt and frees its place; after the last one the message is a dead letter."""
    hangs = Held("async")
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"a", 2), *numbered(b"b", 3))
        running = await bench.start(hangs.handler, concurrency=1, handler_timeout=0.3, max_attempts=1)
        await bench.until_next(running, 5)
        await running.stop()

        [letter] = await bench.letters()
        assert letter.value == b"0"
        reason = b"the handler did not end within 0.3 s (--handler-timeout)"
        assert dict(letter.headers)["_RF_REASON"] == reason
        assert hangs.recorder.wrong == []


async def test_cancelled_and_returned(bootstrap: str) -> None:
    """A handler that takes its cancellation for a normal end has not done its work."""

    async def work(message: Message) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LIMIT_S if message.attempt == 1 else 0)

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"a", 1))
        running = await bench.start(handler, handler_timeout=0.2, max_attempts=1)
        await bench.until_next(running, 1)
        await running.stop()

        assert len(await bench.letters()) == 1


@pytest.mark.parametrize("kind", ["stubborn", "thread"])
async def test_what_nobody_can_end(bootstrap: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The group of a hanging thread, or of a coroutine that ignores its cancellation, waits for it; all others go on."""
    caplog.set_level(logging.ERROR)
    hangs = Held(kind)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"a", 2), *numbered(b"b", 3))
        running = await bench.start(hangs.handler, concurrency=1, handler_timeout=0.3)
        await until(lambda: {2, 3, 4} <= set(hangs.recorder.offsets), lambda: str(hangs.recorder.begun))

        assert running.consumer.dispatcher.runs.left_behind == 1
        assert 1 not in hangs.recorder.offsets
        assert ("ignores its cancellation" in caplog.text) == (kind == "stubborn")

        hangs.free.set()
        await bench.until_next(running, 5)
        await running.stop()

        # What a thread did in the end counts; a coroutine's attempt was cancelled.
        assert hangs.recorder.attempts(0) == ([1] if kind == "thread" else [1, 2])
        assert set(hangs.recorder.offsets) == set(range(5))
        assert hangs.recorder.wrong == []
        assert await bench.letters() == []


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_released_and_skipped(bootstrap: str, kind: str) -> None:
    """An operator ends a run that hangs, and then drops its message: the group continues, whatever became of the run."""
    hangs = Held(kind)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"a", 3))
        running = await bench.start(hangs.handler, concurrency=1)
        async with pages_of(running) as pages:
            await until(lambda: bool(hangs.recorder.begun), lambda: "nothing is begun")
            request = {"partition": 0, "group": b"a".hex()}
            refused = await pages.post("/groups/skip", request)
            released = await pages.post("/groups/release", request)
            other = await pages.post("/groups/release", {"partition": 0, "group": b"b".hex()})

            assert (refused[1]["dropped"], released, other[1]) == (0, (200, {"released": 1}), {"released": 0})

            dispatcher = running.consumer.dispatcher
            await until(lambda: dispatcher.counts["failed"] == 1, lambda: str(dispatcher.counts))
            skipped = await pages.post("/groups/skip", request)

            assert skipped[1]["dropped"] == 1
        await bench.until_next(running, 3)
        hangs.free.set()
        await running.stop()

        assert hangs.recorder.attempts(0) == [1]
        assert {1, 2} <= set(hangs.recorder.offsets)
        assert await bench.letters() == []


# -- everything fails -----------------------------------------------------------------------------------------------


async def test_outage(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """A consumer tries little and discards nothing while nothing succeeds, at any limit of attempts; then it handles all."""
    caplog.set_level(logging.INFO)
    up = asyncio.Event()

    async def work(message: Message) -> None:
        if not up.is_set():
            raise ConnectionRefusedError("the database is away")

    handler = Recorder(work)
    messages = 8 * RUN
    async with consuming(bootstrap) as bench:
        running = await bench.start(handler, concurrency=4, max_attempts=RUN)
        bench.send(*(Sent(None, b"%d" % index, b"") for index in range(messages)))
        breaker = running.consumer.dispatcher.breaker
        await until(lambda: breaker.open, lambda: str(handler.begun))
        tried = len(handler.begun)
        async with pages_of(running) as pages:
            status, report = await pages.get("/health")
        await until(lambda: len(handler.begun) >= tried + 2, lambda: "nothing is tried")

        assert (status, report["faults"]) == (
            503,
            ["nearly every attempt fails, the last with: ConnectionRefusedError: the database is away"],
        )
        assert len({offset for _, offset, _ in handler.begun}) <= RUN + 8

        up.set()
        await bench.until_next(running, messages)
        await until(lambda: running.consumer.ready, lambda: str(running.consumer.faults))
        await running.stop()

        assert sorted(handler.offsets) == list(range(messages))
        assert await bench.letters() == []
        assert caplog.text.count("nearly every attempt fails") == 1
        assert caplog.text.count("attempts succeed again") == 1
