"""Readers of logs: connections that are kept, and the last value of each key."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Producer

from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.readers import consumers
from ringfence_kafka.readers.compacted_topic import CompactedTopic
from ringfence_kafka.readers.log_reader import LogReader
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.lanes import until

PARTITIONS = 3
RECORDS = 300
"""Records of each partition."""


class Bench:
    """Two topics, each partition with its own records, and a count of consumers that were made."""

    def __init__(self, bootstrap: str, reader: LogReader) -> None:
        self.topics = [kafka.unique("read"), kafka.unique("read")]
        self.reader = reader
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

        await self.reader.read_range(self.topics[topic], partition, start, end, consume)
        return found[: end - start]

    def values(self, topic: int, partition: int, start: int, end: int) -> list[bytes]:
        return [b"%s %d %d" % (self.topics[topic].encode(), partition, index) for index in range(start, end)]


@pytest.fixture
async def made(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    bench = Bench(bootstrap, LogReader(KafkaSettings(bootstrap_servers=bootstrap), 2, 60.0))

    class Counted(AIOKafkaConsumer):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            bench.made.append(self)

    monkeypatch.setattr(consumers, "AIOKafkaConsumer", Counted)
    try:
        yield bench
    finally:
        await bench.reader.stop()


async def test_one_consumer_reads_all(made: Bench) -> None:
    """One consumer reads each stretch exactly: of other partitions, of the same once more, and of another topic."""
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


async def test_one_that_failed_is_not_used_again(made: Bench) -> None:
    async def refuse(_records: Sequence[Any]) -> None:
        raise OSError("planted")

    with pytest.raises(OSError, match="planted"):
        await made.reader.read_range(made.topics[0], 0, 0, RECORDS, refuse)
    found = await made.read(0, 0, 0, RECORDS)

    assert found == made.values(0, 0, 0, RECORDS)
    assert [item._closed for item in made.made] == [True, False]


COMPACTED = {"cleanup.policy": "compact"}


@contextlib.asynccontextmanager
async def _reading(bootstrap: str, topic: str, partitions: int = 1) -> AsyncIterator[CompactedTopic]:
    settings = KafkaSettings(bootstrap_servers=bootstrap)
    async with Cluster(settings, "latest") as cluster:
        latest = CompactedTopic(settings, cluster, topic, partitions)
        try:
            yield latest
        finally:
            await latest.stop()


async def _value(latest: CompactedTopic, partition: int, key: bytes) -> bytes | None:
    value, _ = await latest.latest_with_time(partition, key)
    return value


def _topic(bootstrap: str, partitions: int = 1) -> str:
    name = kafka.unique("latest")
    kafka.create_topics(bootstrap, {name: (partitions, COMPACTED)})
    return name


def _write(bootstrap: str, topic: str, *pairs: tuple[bytes, bytes | None], partition: int = 0) -> None:
    records = [Sent(None, key, value) for key, value in pairs]
    kafka.send_in_transaction(bootstrap, topic, records, commit=True, partition=partition)


async def test_what_is_new(bootstrap: str) -> None:
    """The second look sees newer records; tombstones and aborted records count as such."""
    topic = _topic(bootstrap)
    _write(bootstrap, topic, *((b"%d" % index, b"old") for index in range(500)))
    async with _reading(bootstrap, topic) as latest:
        assert await _value(latest, 0, b"7") == b"old"

        _write(bootstrap, topic, (b"7", b"new"), (b"8", None))
        kafka.send_in_transaction(bootstrap, topic, [Sent(None, b"7", b"aborted")], commit=False)
        found = [await _value(latest, 0, key) for key in (b"7", b"8", b"9", b"nobody")]

        assert found == [b"new", None, b"old", None]


async def test_recreated_topic(bootstrap: str) -> None:
    """A topic that was created again is read again, although its end lies far beyond the old position."""
    topic = _topic(bootstrap)
    _write(bootstrap, topic, *((b"%d" % index, b"old") for index in range(10)))
    async with _reading(bootstrap, topic) as latest:
        assert await _value(latest, 0, b"3") == b"old"

        kafka.recreate_topic(bootstrap, topic, 1, **COMPACTED)
        _write(bootstrap, topic, *((b"n%d" % index, b"new") for index in range(50)))

        assert await _value(latest, 0, b"n3") == b"new"
        assert await _value(latest, 0, b"3") is None


async def test_open_transaction_is_waited_for(bootstrap: str) -> None:
    """A look below an open transaction waits for its end and includes its commit; other partitions answer meanwhile.

    The duration does not matter: the end of the look was known before, and later records are not in the answer.
    """
    topic = _topic(bootstrap, 2)
    _write(bootstrap, topic, (b"a", b"1"))
    _write(bootstrap, topic, (b"b", b"1"), partition=1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": kafka.unique("latest-open")})
    producer.init_transactions(kafka.WAIT_S)
    producer.begin_transaction()
    kafka.produce(producer, topic, Sent(None, b"a", b"2"), 0)
    assert producer.flush(kafka.WAIT_S) == 0
    async with _reading(bootstrap, topic, 2) as latest:
        called = time.monotonic()
        asked, given_up = (asyncio.create_task(latest.latest_with_time(0, b"a")) for _ in range(2))

        assert await _value(latest, 1, b"b") == b"1"
        assert not asked.done()

        await until(
            lambda: latest._reader is not None and latest._reader.users == 1, lambda: "nothing is read"
        )
        _write(bootstrap, topic, (b"a", b"3"))
        given_up.cancel()
        committing = time.monotonic()
        await asyncio.to_thread(producer.commit_transaction, kafka.WAIT_S)
        value, asked_at = await asked

        assert value == b"2"
        assert given_up.cancelled()
        assert called < asked_at < committing
        assert await _value(latest, 0, b"a") == b"3"
