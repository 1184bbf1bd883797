"""Readers of logs: connections that are kept, and the last value of each key."""

import asyncio
import contextlib
import itertools
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

RECORDS = 100
"""Records of each partition."""


async def test_one_consumer_reads_all(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One consumer reads each stretch exactly: of other partitions, of the same once more, and of another topic.

    One that failed is not used again.
    """
    made: list[AIOKafkaConsumer] = []

    class Counted(AIOKafkaConsumer):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            made.append(self)

    async def refuse(_records: Sequence[Any]) -> None:
        raise OSError("planted")

    monkeypatch.setattr(consumers, "AIOKafkaConsumer", Counted)
    topics = [kafka.unique("read"), kafka.unique("read")]
    kafka.create_topics(bootstrap, dict.fromkeys(topics, (2, {})))
    for topic, number in itertools.product(topics, range(2)):
        values = [b"%s %d %d" % (topic.encode(), number, index) for index in range(RECORDS)]
        kafka.send(bootstrap, topic, [Sent(None, b"k", value) for value in values], number)
    reader = LogReader(KafkaSettings(bootstrap_servers=bootstrap), 2, 60.0)
    try:
        for at, number, start, end in (
            (0, 0, 0, 100), (0, 1, 10, 90), (0, 1, 5, 20), (1, 1, 0, 100), (0, 0, 99, 100), (0, 0, 0, 1),
        ):  # fmt: skip
            found: list[bytes] = []

            async def consume(records: Sequence[Any], found: list[bytes] = found) -> None:
                found.extend(record.value for record in records)

            await reader.read_range(topics[at], number, start, end, consume)
            place = b"%s %d " % (topics[at].encode(), number)
            assert found[: end - start] == [place + b"%d" % index for index in range(start, end)]
        before = len(made)
        with pytest.raises(OSError, match="planted"):
            await reader.read_range(topics[0], 0, 0, RECORDS, refuse)
        await reader.read_range(topics[0], 0, 0, RECORDS, consume)

        assert before == 1
        assert found[-RECORDS:] == [b"%s 0 %d" % (topics[0].encode(), index) for index in range(RECORDS)]
        assert [item._closed for item in made] == [True, False]
    finally:
        await reader.stop()


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
    return (await latest.read_separately(partition, key)).value


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
        asked, given_up = (asyncio.create_task(latest.read_separately(0, b"a")) for _ in range(2))

        assert await _value(latest, 1, b"b") == b"1"
        assert not asked.done()

        await until(
            lambda: latest._reader is not None and latest._reader.users == 1, lambda: "nothing is read"
        )
        _write(bootstrap, topic, (b"a", b"3"))
        given_up.cancel()
        committing = time.monotonic()
        await asyncio.to_thread(producer.commit_transaction, kafka.WAIT_S)
        value, asked_at, _ = await asked

        assert value == b"2"
        assert given_up.cancelled()
        assert called < asked_at < committing
        assert await _value(latest, 0, b"a") == b"3"
