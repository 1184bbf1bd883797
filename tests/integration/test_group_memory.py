"""What a consumer keeps in memory: a bound for the process, however many partitions it has."""

import asyncio
import gc

import pytest
from aiokafka.consumer.fetcher import PartitionRecords
from confluent_kafka import Producer

from ringfence_client import Message
from ringfence_client.consumer.fetch_loop import FetchLoop
from ringfence_client.window.memory_budget import MemoryBudget
from tests.support import kafka
from tests.support.consumers.in_process import Bench, Recorder, consuming
from tests.support.kafka import Sent
from tests.support.lanes import until

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
    """The most that was there at once: what is kept, and what was fetched."""
    found = [0]
    take = FetchLoop._take

    def looking(intake: FetchLoop, *arguments: object) -> None:
        take(intake, *arguments)  # type: ignore[arg-type]
        memory: MemoryBudget = intake._memory
        found[0] = max(found[0], memory.used + memory.fetched)

    monkeypatch.setattr(FetchLoop, "_take", looking)
    return found


async def test_bound_of_the_process(bootstrap: str, most: list[int]) -> None:
    """A backlog of fifty MiB in twenty partitions, and sixteen to keep: each message is handled once, each group in order."""
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
    """What was fetched of partitions that had to wait is gone at once, not when Python looks for cycles of objects."""
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
            await until(
                lambda: len(consumer._consumer.paused()) == PARTITIONS and not consumer.memory.fetched,
                lambda: f"{len(consumer._consumer.paused())} wait, {consumer.memory.fetched} bytes",
            )
            left = [object_ for object_ in gc.get_objects() if isinstance(object_, PartitionRecords)]
            sizes = [item._records.size_in_bytes() for item in left if item._records_iterator is not None]
        finally:
            gc.enable()
        await running.stop()

    assert sum(sizes) < MIB
