"""Takeover of a lease: its waiting consumers, the time that they wait, and the remaining rights of its holder."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest
from aiokafka import TopicPartition

from ringfence_client import Message
from ringfence_client.partition.lease_acquisition import FRESH_S
from ringfence_client.progress.progress_record import DRAINING, RELEASED
from ringfence_kafka import clock
from ringfence_kafka.process import failpoints
from ringfence_kafka.producer.transactional import FencedError
from tests.support.consumers.in_process import Bench, Recorder, Running, consuming, numbered
from tests.support.consumers.leases import JumpingClock, Outsider, SleepingClock, take
from tests.support.kafka import Sent
from tests.support.lanes import LIMIT_S, planted, until

UNGROUPED = [Sent(None, None, b"%d" % index) for index in range(5)]


@pytest.fixture
def wall_clock_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the wall clock jump forward, which would shorten a waiting consumer's time."""
    monkeypatch.setattr(clock, "time", JumpingClock(3600))


async def _made(bench: Bench) -> None:
    """Make the topics, as the first consumer does."""
    running = await bench.start(Recorder())
    await running.stop()


@contextlib.asynccontextmanager
async def _outsider(bootstrap: str) -> AsyncIterator[tuple[Bench, Outsider]]:
    """Yield a partition with five ungrouped messages, and somebody else who writes its lease."""
    async with consuming(bootstrap) as bench:
        await _made(bench)
        bench.send(*UNGROUPED)
        async with Outsider(bench) as outsider:
            yield bench, outsider


async def _waits(running: Running, text: str = "") -> None:
    """Wait until the consumer reports that it waits for the holder of partition 0."""
    await until(
        lambda: text in running.consumer.reasons.get(0, "nothing"), lambda: str(running.consumer.reasons)
    )


async def _begins(handler: Recorder) -> None:
    await until(lambda: bool(handler.begun), lambda: "nothing is begun")


async def test_last_attempts_of_suspects(bootstrap: str) -> None:
    """Messages that may have ended their process get their last attempt one at a time; new messages run beside it."""
    together: list[set[int]] = []
    running_now: set[int] = set()
    suspects = set(range(5))
    begun = {True: asyncio.Event(), False: asyncio.Event()}

    async def note(message: Message) -> None:
        running_now.add(message.offset)
        together.append(set(running_now))
        # What is new and what is in its last attempt wait for each other: they do run side by side, whichever comes first.
        begun[message.offset in suspects].set()
        if message.offset not in {3, 4}:
            await asyncio.wait_for(begun[message.offset not in suspects].wait(), 20)
        await asyncio.sleep(0.05)
        running_now.discard(message.offset)

    handler = Recorder(note)
    async with consuming(bootstrap) as bench:
        await _made(bench)
        bench.send(*(Sent(None, b"g%d" % index, b"") for index in range(8)))
        async with Outsider(bench) as outsider:
            # Three have been in the last attempt but one when their holder died, a fourth in its first.
            await outsider.write(
                delivered=5, reserved=5, running=4, attempts={0: 2, 1: 2, 2: 2, 3: 1}, commit=True
            )
            running = bench.launch(handler, lease_timeout=3, max_attempts=3, concurrency=8)
            await bench.until_next(running, 8)
        await running.stop()
        letters = await bench.letters()

        assert [handler.attempts(index) for index in range(5)] == [[3], [3], [3], [2], [1]]
        assert all(len(item & suspects) == 1 for item in together if item & {0, 1, 2})
        assert any(item & {0, 1, 2} and item - suspects for item in together)
        assert letters == []


@pytest.mark.parametrize(
    ("count", "limit", "idle"), [(1, 3.0, 0.3), (0, 300.0, 1.0)], ids=["running", "idle"]
)
async def test_silent_holder(
    bootstrap: str, wall_clock_jumps: None, count: int, limit: float, idle: float
) -> None:
    """A silent holder is waited for, for the shorter time if it was at rest; the wall clock does not count."""
    handler = Recorder()
    async with _outsider(bootstrap) as (bench, outsider):
        begun = time.monotonic()
        await outsider.write(token=7, delivered=2, reserved=5, running=count)
        running = bench.launch(handler, lease_timeout=limit, lease_idle=idle)
        await _waits(running, "held by outsider, held, token 7: unchanged for")
        await _begins(handler)
        waited = time.monotonic() - begun
        await bench.until_next(running, 5)

        assert waited >= (limit if count else idle)
        assert {message.fence for message in handler.messages} == {8}
        assert sorted(handler.offsets) == [0, 1, 2, 3, 4]


async def test_rebalances_while_one_waits(bootstrap: str) -> None:
    """A silent holder's partition is taken although rebalances and failed looks come more often than the time-out."""
    handler = Recorder()
    looks = 0

    async def fail_at_times(point: str, lane: str) -> None:
        nonlocal looks
        looks += 1
        if looks % 2 == 0:
            raise OSError("planted")

    async with _outsider(bootstrap) as (bench, outsider):
        begun = time.monotonic()
        await outsider.write(token=7)
        running = bench.launch(handler, lease_idle=1.5)
        await _waits(running, "held by outsider")
        with planted("opening", bench.lease_name(), fail_at_times):
            while not handler.begun and time.monotonic() < begun + LIMIT_S:
                # Lines of aiokafka when the group is rebalanced.
                await running.consumer.held_partitions.revoked([TopicPartition(bench.accepted, 0)])
                running.consumer.held_partitions.given([TopicPartition(bench.accepted, 0)])
                await asyncio.sleep(0.5)

        assert {message.fence for message in handler.messages} == {8}


async def test_released_while_one_waits(bootstrap: str) -> None:
    """Acknowledgements of a draining holder count, and the wait ends when it releases the partition."""
    handler = Recorder()
    async with _outsider(bootstrap) as (bench, outsider):
        await outsider.write(commit=True, state=DRAINING, token=4, delivered=3, reserved=5, running=2)
        running = bench.launch(handler, lease_timeout=300.0, lease_idle=300.0)
        await _waits(running, "outsider, draining, token 4")
        await outsider.write(commit=True, next=2, finished=[(3, 4)], running=0)
        await outsider.write(commit=True, state=RELEASED)
        await bench.until_next(running, 5)

        assert sorted(handler.begun) == [(0, 2, 1), (0, 4, 1)]
        assert {message.fence for message in handler.messages} == {5}


async def test_read_again_after_the_fence(bootstrap: str) -> None:
    """Messages that the former holder finishes between the last look and the fence are not done again."""
    handler = Recorder()
    async with _outsider(bootstrap) as (bench, outsider):
        await outsider.write(token=4, delivered=4, reserved=5)

        async def late(point: str, lane: str) -> None:
            if outsider.lease.beat == 1:
                await outsider.write(token=9, finished=[(1, 4)])

        with planted("before-fence", bench.lease_name(), late):
            running = bench.launch(handler)
            await bench.until_next(running, 5)

        assert sorted(handler.begun) == [(0, 0, 1), (0, 4, 1)]
        assert {message.fence for message in handler.messages} == {10}


async def test_renewed_before_the_fence(bootstrap: str) -> None:
    """A lease that its holder renews between the last look and the fence is waited for again: its token stays the holder's."""
    handler = Recorder()
    async with _outsider(bootstrap) as (bench, outsider):
        await outsider.write(token=4, delivered=4, reserved=5)

        async def late(point: str, lane: str) -> None:
            if outsider.lease.beat == 1:
                await outsider.write(running=1)

        with planted("before-fence", bench.lease_name(), late):
            running = bench.launch(handler, lease_timeout=300.0)
            await _waits(running, "1 unacknowledged")

        assert handler.begun == []

        # As a holder that is still a member does.
        await outsider.fence()
        await outsider.write(commit=True, state=RELEASED, next=3, running=0)
        await bench.until_next(running, 5)

        assert sorted(handler.offsets) == [3, 4]


async def test_late_write_is_refused(bootstrap: str) -> None:
    """No write of the former holder counts after the fence, and the next one's first record has its name."""
    handler = Recorder()
    refused = False
    async with _outsider(bootstrap) as (bench, outsider):
        await outsider.write(token=4)

        async def late(point: str, lane: str) -> None:
            nonlocal refused
            try:
                await outsider.write(commit=True, next=5)
            except FencedError:
                refused = True

        with planted("after-fence", bench.lease_name(), late):
            running = bench.launch(handler)
            await bench.until_next(running, 5)

        assert refused
        assert sorted(handler.offsets) == [0, 1, 2, 3, 4]
        assert (await bench.agreed()).token == 5


async def test_written_while_one_waits_for_a_turn(bootstrap: str) -> None:
    """A free lease is read again after a queue for the fence: its holder may have woken meanwhile."""
    handler = Recorder()
    async with _outsider(bootstrap) as (bench, outsider):
        await outsider.write(token=7, delivered=2, reserved=5)
        running = bench.launch(handler, lease_timeout=300.0, lease_idle=3.0)
        await _waits(running, "held by outsider")
        clients = running.consumer.held_partitions.acquisition._clients
        queue = clients.turns = asyncio.Semaphore(0)
        await until(lambda: bool(queue._waiters), lambda: "nobody waits for a turn")
        await outsider.write(running=1)
        await asyncio.sleep(FRESH_S)  # what it has seen is old
        queue.release()
        await _waits(running, "1 unacknowledged")
        try:
            await outsider.write()
        except FencedError:
            raise AssertionError("a holder that had written was fenced") from None

        assert handler.begun == []

        await outsider.write(running=0, state=RELEASED)
        await _begins(handler)
        await bench.until_next(running, 5)


@pytest.fixture
def wall_clock_jumps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the wall clock jump back, which would lengthen a holder's time."""
    monkeypatch.setattr(clock, "time", JumpingClock(-3600))


async def test_holder_that_cannot_write(bootstrap: str, wall_clock_jumps_back: None) -> None:
    """A holder that cannot write begins nothing after half of its time-out; when it can write again it continues, and repeats nothing."""
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
    """A consumer that wakes begins nothing under its old lease, which somebody has taken, though no clock of asyncio's has moved."""
    sleeping = SleepingClock()
    monkeypatch.setattr(clock, "time", sleeping)
    handler = Recorder()
    async with consuming(bootstrap) as bench:
        running = await bench.start(handler, lease_timeout=60.0, lease_idle=60.0)
        bench.send(Sent(None, b"group"))
        await bench.until_next(running, 1)
        holder = running.consumer.partitions[0].writer
        await holder.persisted()  # else the next holder handles it again

        assert holder.covers()

        await take(bench)
        sleeping.sleep(3600)

        assert not holder.covers()

        bench.send(Sent(None, b"group"))
        await until(lambda: len(handler.done) == 2, lambda: str(handler.begun))
        await running.stop()

    assert [message.fence for message in handler.messages] == [1, 3]
