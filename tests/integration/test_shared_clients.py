"""Transactional producers that share connections."""

import asyncio

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import UnknownTopicOrPartitionError

from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.process import failpoints
from ringfence_kafka.producer.shared_clients import ProducerClients
from ringfence_kafka.producer.transactional import FencedError, Outgoing, TransactionalProducer
from tests.support import kafka


def _producer(bootstrap: str, name: str, clients: ProducerClients | None) -> TransactionalProducer:
    settings = KafkaSettings(bootstrap_servers=bootstrap)
    return TransactionalProducer(settings, name, name, transaction_timeout_ms=10_000, clients=clients)


async def _write(producer: TransactionalProducer, topic: str, value: bytes, partition: int = 0) -> None:
    builder = producer.builder()
    builder.append(timestamp=None, key=b"k", value=value, headers=[])
    await producer.transact(
        [Outgoing(topic, partition, builder)], {TopicPartition(topic, partition): 1}, "shared"
    )


@pytest.mark.usefixtures("transactions")
async def test_topic_that_grew(bootstrap: str) -> None:
    """A partition newer than the metadata is written to at once; the error names a missing one."""
    topic = kafka.unique("shared")
    kafka.create_topics(bootstrap, {topic: (1, {})})
    clients = ProducerClients(KafkaSettings(bootstrap_servers=bootstrap))
    producer = _producer(bootstrap, kafka.unique("shared-producer"), clients)
    try:
        await producer.fence()
        await _write(producer, topic, b"before")
        kafka.grow_topic(bootstrap, topic, 3)
        await _write(producer, topic, b"after", partition=2)
        with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic}/7"):
            await _write(producer, topic, b"nowhere", partition=7)
    finally:
        await producer.discard()
        await clients.stop()

    assert [(item.partition, item.value) for item in kafka.read_all(bootstrap, topic, 3)] == [
        (0, b"before"),
        (2, b"after"),
    ]


@pytest.mark.usefixtures("transactions")
async def test_one_fails_and_others_go_on(bootstrap: str) -> None:
    """Producers on one connection write on while one is fenced and discarded, and one is discarded in a transaction."""
    topic = kafka.unique("shared")
    kafka.create_topics(bootstrap, {topic: (4, {})})
    clients = ProducerClients(KafkaSettings(bootstrap_servers=bootstrap), clients_max=1)
    names = [kafka.unique("shared-producer") for _ in range(4)]
    well, other, fenced, left = producers = [_producer(bootstrap, name, clients) for name in names]
    await asyncio.gather(*(producer.fence() for producer in producers))
    await asyncio.gather(
        *(_write(producer, topic, b"1", number) for number, producer in enumerate(producers))
    )
    successor = _producer(bootstrap, names[2], clients)
    await successor.fence()
    with pytest.raises(FencedError):
        await _write(fenced, topic, b"never", 2)
    begun = asyncio.Event()

    async def hold(point: str, lane: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    remove = failpoints.install("before-commit", names[3], hold)
    writing = asyncio.create_task(_write(left, topic, b"never", 3))
    await asyncio.wait_for(begun.wait(), kafka.WAIT_S)
    writing.cancel()
    remove()
    await asyncio.gather(_write(well, topic, b"2"), fenced.discard(), left.discard())
    await asyncio.gather(_write(other, topic, b"2", 1), _write(successor, topic, b"2", 2))
    values = [(item.partition, item.value) for item in kafka.read_all(bootstrap, topic, 4)]

    assert values == [(0, b"1"), (0, b"2"), (1, b"1"), (1, b"2"), (2, b"1"), (2, b"2"), (3, b"1")]
    assert len(clients._clients) == 1
    assert clients._clients[0].shares == 3

    await asyncio.gather(well.discard(), other.discard(), successor.discard())
    await clients.stop()
