"""Backlogs of a consumer: its memory is bounded, and no record outside of it is lost."""

import asyncio
import gc
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from confluent_kafka import Producer

from ringfence_client import Message
from ringfence_client.consumer.fetch_loop import FetchLoop
from ringfence_client.partition.parked_reader import ParkedReader
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_kafka.readers import consumers
from tests.support import kafka
from tests.support.consumers.in_process import Bench, Recorder, Running, consuming, numbered
from tests.support.kafka import Sent
from tests.support.lanes import until

SMALL = {"records_max": 20, "concurrency": 4}
"""A window of 20 records, of which a group that is alone has 10."""


class Stuck:
    """A handler that does not return from one message before it is let go."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.reached = asyncio.Event()
        self.free = asyncio.Event()

    async def __call__(self, message: Message) -> None:
        if message.offset == self.offset:
            self.reached.set()
            await self.free.wait()
        await asyncio.sleep(0)


def _undone(running: Running) -> dict[str, int]:
    return dict(running.consumer.partitions[0].window.counts)


async def _wait_parked(running: Running, count: int) -> None:
    await until(lambda: _undone(running)["parked"] >= count, lambda: str(_undone(running)))


async def _parked(bench: Bench, handler: Recorder, *messages: Sent) -> Running:
    """Start a consumer with a small window, with 50 of these messages beyond it."""
    bench.send(*messages)
    running = await bench.start(handler, **SMALL)
    await _wait_parked(running, 50)
    return running


@pytest.mark.parametrize("stuck_at", [0, pytest.param(5, marks=pytest.mark.long)])
async def test_stuck_group(bootstrap: str, stuck_at: int) -> None:
    """1,000 other groups flow by a group with a message that never ends, whichever it is, under a backlog far above the window."""
    stuck = Stuck(stuck_at)
    handler = Recorder(stuck)
    async with consuming(bootstrap) as bench:
        bench.send(
            *numbered(b"stuck", 400), *(Sent(None, b"lively-%d" % (index % 1_000)) for index in range(1_500))
        )
        running = await bench.start(handler, **SMALL)
        await until(
            lambda: len(handler.done) == 1_500 + stuck_at,
            lambda: f"{len(handler.done)} done, {_undone(running)}",
        )

        assert _undone(running)["parked"] > 350
        assert await bench.committed() <= stuck_at

        stuck.free.set()
        await bench.until_next(running, 1_900)
        await running.stop()

        assert handler.wrong == []
        assert handler.by_group()[b"stuck"] == list(range(400))
        assert len(handler.done) == 1_900
        assert {attempt for _, _, attempt in handler.begun} == {1}
        assert (await bench.agreed()).next == 1_900


async def test_parked_and_a_replica_that_is_behind(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parked message is handled from the leader if a follower answers that its offset is out of range.

    The follower does not have it yet, or no more.
    """
    answers = 0

    class NearestFirst(AIOKafkaConsumer):  # type: ignore[misc]
        async def getmany(self, *partitions: Any, **options: Any) -> Any:
            nonlocal answers
            answers += 1
            if answers <= 3:
                raise OffsetOutOfRangeError({partitions[0]: 0})
            return await super().getmany(*partitions, **options)

    monkeypatch.setattr(consumers, "AIOKafkaConsumer", NearestFirst)
    stuck = Stuck(0)
    handler = Recorder(stuck)
    async with consuming(bootstrap) as bench:
        running = await _parked(bench, handler, *numbered(b"stuck", 60))
        stuck.free.set()
        await bench.until_next(running, 60)
        await running.stop()

        assert answers > 3
        assert handler.wrong == []
        assert handler.by_group()[b"stuck"] == list(range(60))


async def test_parked_cannot_be_read(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group whose parked messages cannot be read waits; all else of the partition runs on."""
    stuck, other = Stuck(0), Stuck(60)
    original = ParkedReader._stretch
    failures = 0

    async def fails_twice(self: Any, *args: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures <= 2:
            raise KafkaError("planted")
        return await original(self, *args)

    monkeypatch.setattr(ParkedReader, "_stretch", fails_twice)

    async def both(message: Message) -> None:
        await stuck(message)
        await other(message)

    handler = Recorder(both)
    async with consuming(bootstrap) as bench:
        running = await _parked(bench, handler, *numbered(b"stuck", 60), *numbered(b"other", 2))
        await other.reached.wait()
        held = running.consumer.partitions[0]
        stuck.free.set()
        await until(lambda: len(handler.done) == 60, lambda: str(handler.done))

        assert running.consumer.partitions[0] is held
        assert failures >= 3

        other.free.set()
        await bench.until_next(running, 62)

        assert handler.wrong == []
        assert handler.attempts(60) == [1]


MIB = 2**20
PARTITIONS = 20
EACH = 60
BYTES = 40_000
GROUPS = 5


def _fill(bench: Bench, partitions: int, each: int, size: int = BYTES) -> None:
    producer = Producer({"bootstrap.servers": bench.bootstrap, "queue.buffering.max.kbytes": 400_000})
    for number in range(each):
        for partition in range(partitions):
            key = b"%d-%d" % (partition, number % GROUPS)
            kafka.produce(producer, bench.accepted, Sent(None, key, b"v" * size), partition)
    assert producer.flush(kafka.WAIT_S) == 0


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the most bytes that were kept and fetched at once."""
    found = [0]
    take = FetchLoop._take

    def looking(intake: FetchLoop, *arguments: object) -> None:
        take(intake, *arguments)  # type: ignore[arg-type]
        memory: MemoryBudget = intake._memory
        found[0] = max(found[0], memory.used + memory.fetched)

    monkeypatch.setattr(FetchLoop, "_take", looking)
    return found


async def test_bound_of_the_process(bootstrap: str, most: list[int]) -> None:
    """A consumer that may keep 16 MiB handles fifty MiB in twenty partitions: each message once, each group in order."""
    free = asyncio.Event()

    async def work(message: Message) -> None:
        await free.wait()

    handler = Recorder(work)
    async with consuming(bootstrap, partitions=PARTITIONS) as bench:
        _fill(bench, PARTITIONS, EACH)
        running = await bench.start(handler, memory_max=16 * MIB, concurrency=20)
        await until(lambda: most[0] > 8 * MIB, lambda: f"{most[0]} bytes")
        free.set()
        await until(
            lambda: len(handler.done) >= PARTITIONS * EACH,
            lambda: f"{len(handler.done)} of {PARTITIONS * EACH}, {running.consumer.memory.used} bytes",
            60.0,
        )
        await running.stop()

    assert handler.wrong == []
    assert sorted(handler.done) == [
        (partition, index) for partition in range(PARTITIONS) for index in range(EACH)
    ]
    assert most[0] < 16 * MIB
    assert running.consumer.memory.used == 0


async def test_nothing_is_left_behind(bootstrap: str) -> None:
    """Fetched records of waiting partitions are freed at once, not when Python looks for cycles of objects."""
    free = asyncio.Event()

    async def work(message: Message) -> None:
        await free.wait()

    async with consuming(bootstrap, partitions=PARTITIONS) as bench:
        _fill(bench, PARTITIONS, 10 * EACH, BYTES // 10)
        gc.collect()
        gc.disable()
        try:
            running = await bench.start(Recorder(work), records_max=50, drain_timeout=0.2)
            consumer = running.consumer

            def left() -> int:
                found = [item for item in gc.get_objects() if isinstance(item, PartitionRecords)]
                return sum(
                    item._records.size_in_bytes() for item in found if item._records_iterator is not None
                )

            await until(
                lambda: (
                    len(consumer._consumer.paused()) == PARTITIONS
                    and not consumer.memory.fetched
                    and left() < MIB
                ),  # an answer of a broker may be on its way
                lambda: (
                    f"{len(consumer._consumer.paused())} wait, {consumer.memory.fetched} bytes, {left()} left"
                ),
            )
        finally:
            gc.enable()
        await running.stop()
