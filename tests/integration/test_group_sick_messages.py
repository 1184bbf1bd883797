"""Messages that always fail cost their own groups and nobody else's, however many there are."""

import asyncio
from typing import Any

import pytest

from ringfence_client import Message, Reject, Retry
from tests.support.consumers.in_process import Recorder, Running, consuming
from tests.support.kafka import Sent
from tests.support.lanes import until

SLOTS = 4


def _sick(count: int, first: int = 0) -> list[Sent]:
    return [Sent(None, b"sick %d" % index, b"sick") for index in range(first, first + count)]


def _well(count: int) -> list[Sent]:
    return [Sent(None, b"well %d" % index, b"well") for index in range(count)]


async def _until_finished(running: Running, handler: Recorder, count: int) -> None:
    await until(lambda: running.consumer.dispatcher.counts["finished"] == count, lambda: str(handler.done))


class _Fails:
    """A handler that fails at sick messages, and counts how many retries ran at once."""

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause
        self.retrying = 0
        self.most = 0

    async def __call__(self, message: Message) -> None:
        if message.value != b"sick":
            return
        retry = message.attempt > 1
        self.retrying += retry
        self.most = max(self.most, self.retrying)
        try:
            await asyncio.sleep(self.pause)
        finally:
            self.retrying -= retry
        raise Retry("sick", delay=0)


async def test_retries_have_half_of_the_slots(bootstrap: str) -> None:
    """Forty groups that are retried without a pause; healthy ones find a slot whenever they come."""
    fails = _Fails(pause=0.05)
    handler = Recorder(fails)
    async with consuming(bootstrap) as bench:
        bench.send(*_sick(40))
        running = await bench.start(handler, concurrency=SLOTS, max_attempts=10_000, breaker=False)
        await until(lambda: fails.most == SLOTS // 2, lambda: f"{fails.most} retries at once")
        bench.send(*_well(40))
        await _until_finished(running, handler, 40)

        assert fails.most == SLOTS // 2


@pytest.mark.parametrize("sick", [1, 20, 180])
async def test_share_of_sick_groups(bootstrap: str, sick: int) -> None:
    """Some of 200 groups fail for ever. All others are handled, and each sick message becomes a dead letter after its attempts."""
    handler = Recorder(_Fails())
    async with consuming(bootstrap) as bench:
        messages = [*_sick(sick), *_well(200 - sick)]
        messages.sort(key=lambda each: (each.key or b"")[::-1])  # mixed
        bench.send(*messages)
        running = await bench.start(handler, concurrency=SLOTS, max_attempts=3, breaker=False)
        await bench.until_next(running, 200)
        await running.stop()

        assert len(handler.done) == 200 - sick
        assert len(await bench.letters()) == sick
        assert {attempt for _, _, attempt in handler.begun} == {1, 2, 3}
        assert len(handler.begun) == 200 + 2 * sick


async def test_parked_groups_make_room(bootstrap: str) -> None:
    """Many more groups wait behind their dead letters than records are kept; healthy ones pass, and a redrive finds its message."""
    parked = 150

    async def work(message: Message) -> Any:
        if message.value == b"sick" and not message.redriven:
            raise Reject("sick")

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        bench.send(*_sick(parked))
        running = await bench.start(handler, concurrency=SLOTS, on_dead_letter="park", records_max=20)
        held = running.consumer.partitions[0]
        await until(lambda: len(held.window.blocked) == parked, lambda: str(len(held.window.blocked)))
        bench.send(*_well(100))
        await _until_finished(running, handler, 100)

        assert len(held.window.resident) <= 20
        for number in (0, parked - 1):
            assert held.redrive(number, 1)
            held.writer.note()
        await until(lambda: {0, parked - 1} <= set(handler.offsets), lambda: str(handler.done))
        assert handler.wrong == []
