"""Consumers that stay connected from one stretch of a log to the next."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.readers import log_reader
from ringfence_kafka.readers.log_reader import Readers
from tests.support import kafka
from tests.support.lanes import until

PARTITIONS = 3
RECORDS = 300
"""Of each partition."""


class Bench:
    """Two topics, each partition with its own records, and a count of consumers that were made."""

    def __init__(self, bootstrap: str, readers: Readers) -> None:
        self.topics = [kafka.unique("read"), kafka.unique("read")]
        self.readers = readers
        self.made: list[AIOKafkaConsumer] = []
        kafka.create_topics(bootstrap, dict.fromkeys(self.topics, (PARTITIONS, {})))
        for topic in self.topics:
            for number in range(PARTITIONS):
                records = [
                    kafka.Sent(None, b"k", b"%s %d %d" % (topic.encode(), number, index))
                    for index in range(RECORDS)
                ]
                kafka.send(bootstrap, topic, records, number)

    async def read(self, topic: int, partition: int, start: int, end: int) -> list[bytes]:
        found: list[bytes] = []

        async def consume(records: Sequence[Any]) -> None:
            found.extend(record.value for record in records)

        await log_reader.read(self.readers, self.topics[topic], partition, start, end, consume)
        return found[: end - start]

    def values(self, topic: int, partition: int, start: int, end: int) -> list[bytes]:
        return [b"%s %d %d" % (self.topics[topic].encode(), partition, index) for index in range(start, end)]


@pytest.fixture
async def made(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    bench = Bench(bootstrap, Readers(KafkaSettings(bootstrap_servers=bootstrap), 2, 60.0))

    class Counted(AIOKafkaConsumer):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            bench.made.append(self)

    monkeypatch.setattr(log_reader, "AIOKafkaConsumer", Counted)
    try:
        yield bench
    finally:
        await bench.readers.stop()


async def test_one_consumer_reads_all(made: Bench) -> None:
    """Stretch after stretch, of other partitions, of the same once more, of another topic: each exactly as it stands there."""
    stretches = [
        (0, 0, 0, 300),
        (0, 1, 10, 200),
        (0, 1, 5, 20),
        (1, 2, 0, 300),
        (0, 0, 299, 300),
        (0, 0, 0, 1),
    ]
    found = [await made.read(*stretch) for stretch in stretches]

    assert found == [made.values(*stretch) for stretch in stretches]
    assert len(made.made) == 1


async def test_many_at_once(made: Bench) -> None:
    """Nobody is given another's records; those for which there is no room are disconnected."""
    stretches = [(topic, number, 0, 300) for topic in range(2) for number in range(PARTITIONS)]
    found = await asyncio.gather(*(made.read(*stretch) for stretch in stretches))
    again = await asyncio.gather(*(made.read(*stretch) for stretch in stretches[:2]))

    assert found == [made.values(*stretch) for stretch in stretches]
    assert again == found[:2]
    assert len(made.made) == len(stretches)
    assert sum(not item._closed for item in made.made) == 2


async def test_one_that_failed_is_not_used_again(made: Bench) -> None:
    async def refuse(_records: Sequence[Any]) -> None:
        raise OSError("planted")

    with pytest.raises(OSError, match="planted"):
        await log_reader.read(made.readers, made.topics[0], 0, 0, RECORDS, refuse)
    found = await made.read(0, 0, 0, RECORDS)

    assert found == made.values(0, 0, 0, RECORDS)
    assert [item._closed for item in made.made] == [True, False]


async def test_a_rest_has_an_end(made: Bench) -> None:
    """Who has nothing to read for a while has no connection; and none is left after the end."""
    made.readers._rests_s = 0.05
    await made.read(0, 0, 0, RECORDS)
    await until(lambda: made.made[0]._closed, lambda: "it is connected")
    made.readers._rests_s = 60.0
    await made.read(0, 1, 0, RECORDS)
    await made.readers.stop()
    late = await made.read(0, 2, 0, RECORDS)

    assert late == made.values(0, 2, 0, RECORDS)
    assert [item._closed for item in made.made] == [True, True, True]
