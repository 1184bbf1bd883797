"""Backlogs of a consumer: its memory is bounded, and no record outside of it is lost."""

import asyncio
import itertools
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from confluent_kafka import Producer

from ringfence_client import Message
from ringfence_client.consumer.fetch_loop import FetchLoop
from ringfence_client.partition.parked_reader import ParkedReader
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_kafka.readers import consumers
from tests.support import kafka
from tests.support.consumers.in_process import Recorder, Running, consuming, numbered
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


async def test_stuck_group(bootstrap: str) -> None:
    """1,000 other groups flow by a group with a message that never ends, under a backlog far above the window."""
    stuck = Stuck(0)
    handler = Recorder(stuck)
    async with consuming(bootstrap) as bench:
        bench.send(
            *numbered(b"stuck", 400), *(Sent(None, b"lively-%d" % (index % 1_000)) for index in range(1_500))
        )
        running = await bench.start(handler, **SMALL)
        await until(
            lambda: len(handler.done) == 1_500, lambda: f"{len(handler.done)} done, {_undone(running)}"
        )

        assert _undone(running)["parked"] > 350
        assert await bench.committed() <= 0

        stuck.free.set()
        await bench.until_next(running, 1_900)
        await running.stop()

        assert handler.wrong == []
        assert handler.by_group()[b"stuck"] == list(range(400))
        assert len(handler.done) == 1_900
        assert {attempt for _, _, attempt in handler.begun} == {1}
        assert (await bench.agreed()).next == 1_900


async def test_parked_cannot_be_read(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group whose parked messages cannot be read waits; all else of the partition runs on.

    They are handled from the leader if a follower answers that their offset is out of range: it does not have it yet, or no more.
    """
    stuck, other = Stuck(0), Stuck(60)
    original = ParkedReader._stretch
    failures = answers = 0

    async def fails_twice(self: Any, *args: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures <= 2:
            raise KafkaError("planted")
        return await original(self, *args)

    class NearestFirst(AIOKafkaConsumer):  # type: ignore[misc]
        async def getmany(self, *partitions: Any, **options: Any) -> Any:
            nonlocal answers
            answers += 1
            if answers <= 3:
                raise OffsetOutOfRangeError({partitions[0]: 0})
            return await super().getmany(*partitions, **options)

    async def both(message: Message) -> None:
        await stuck(message)
        await other(message)

    monkeypatch.setattr(ParkedReader, "_stretch", fails_twice)
    monkeypatch.setattr(consumers, "AIOKafkaConsumer", NearestFirst)
    handler = Recorder(both)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"stuck", 60), *numbered(b"other", 2))
        running = await bench.start(handler, **SMALL)
        await until(lambda: _undone(running)["parked"] >= 50, lambda: str(_undone(running)))
        await other.reached.wait()
        held = running.consumer.partitions[0]
        stuck.free.set()
        await until(lambda: len(handler.done) == 60, lambda: str(handler.done))

        assert running.consumer.partitions[0] is held
        assert (failures >= 3, answers > 3) == (True, True)

        other.free.set()
        await bench.until_next(running, 62)

        assert handler.wrong == []
        assert handler.by_group()[b"stuck"] == list(range(60))
        assert handler.attempts(60) == [1]


MIB = 2**20
PARTITIONS = 20
EACH = 60
BYTES = 40_000
GROUPS = 5


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
        producer = Producer({"bootstrap.servers": bench.bootstrap, "queue.buffering.max.kbytes": 400_000})
        for number, partition in itertools.product(range(EACH), range(PARTITIONS)):
            record = Sent(None, b"%d-%d" % (partition, number % GROUPS), b"v" * BYTES)
            kafka.produce(producer, bench.accepted, record, partition)
        assert producer.flush(kafka.WAIT_S) == 0
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
