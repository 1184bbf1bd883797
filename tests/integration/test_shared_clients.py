"""Transactional producers that share connections."""

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import ProducerFenced, UnknownTopicOrPartitionError
from aiokafka.structs import OffsetAndMetadata
from confluent_kafka import Producer

from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.process import failpoints
from ringfence_kafka.producer import transaction_version
from ringfence_kafka.producer.shared_clients import ProducerClients
from ringfence_kafka.producer.transaction_v1 import TransactionV1
from ringfence_kafka.producer.transactional import FencedError, Outgoing, TransactionalProducer
from tests.support import kafka
from tests.support.consumers.in_process import Recorder, consuming
from tests.support.kafka import Sent
from tests.support.lanes import until

WIDE = 100
SOCKETS_MAX = 60


def _producer(bootstrap: str, name: str, clients: ProducerClients | None) -> TransactionalProducer:
    settings = KafkaSettings(bootstrap_servers=bootstrap)
    return TransactionalProducer(settings, name, name, transaction_timeout_ms=10_000, clients=clients)


async def _write(producer: TransactionalProducer, topic: str, value: bytes, partition: int = 0) -> None:
    builder = producer.builder()
    builder.append(timestamp=None, key=b"k", value=value, headers=[])
    await producer.transact(
        [Outgoing(topic, partition, builder)], {TopicPartition(topic, partition): 1}, "shared"
    )


def _sockets() -> int:
    links = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum(link.startswith("socket:") for link in links)


def _one_each(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(WIDE):
        kafka.produce(producer, topic, Sent(None, b"g", b"v"), number)
    assert producer.flush(kafka.WAIT_S) == 0


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


async def test_cancelled_while_offsets_are_sent(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An aiokafka producer that is fenced after a cancellation leaves no error that nobody retrieved."""
    monkeypatch.setenv(transaction_version.VARIABLE, "off")
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    producer = _producer(bootstrap, kafka.unique("cancelled"), None)
    await producer.fence()
    await producer._producer.begin_transaction()
    offsets = {TopicPartition("any", 0): OffsetAndMetadata(1, "")}
    sending = asyncio.create_task(TransactionV1(producer._producer, "any")._send_offsets(offsets, "any"))
    await asyncio.sleep(0)
    waits = bool(producer._producer._txn_manager._pending_txn_offsets)
    sending.cancel()
    await asyncio.wait([sending])
    producer._producer._txn_manager.fatal_error(ProducerFenced())
    await producer.discard()
    del producer
    await asyncio.sleep(0)
    gc.collect()

    assert waits
    assert sending.cancelled()
    assert unseen == []


async def test_broker_restarts(tmp_path: Path) -> None:
    """Producers that write during a kill of the broker fail or continue; all can be opened again, and nothing is left running."""
    with EmbeddedBroker(tmp_path / "broker") as broker:
        bootstrap = broker.bootstrap_servers
        kafka.settle(bootstrap)
        kafka.create_topics(bootstrap, {"restarted": (1, {})})
        clients = ProducerClients(KafkaSettings(bootstrap_servers=bootstrap), clients_max=2)
        tasks = asyncio.all_tasks()
        producers = [_producer(bootstrap, f"restarted-{number}", clients) for number in range(6)]
        await asyncio.gather(*(producer.fence() for producer in producers))
        await asyncio.gather(*(_write(producer, "restarted", b"1") for producer in producers))
        await asyncio.to_thread(broker.kill)
        writing = [asyncio.create_task(_write(producer, "restarted", b"lost")) for producer in producers[:3]]
        await asyncio.wait(writing, timeout=1)
        for task in writing:
            task.cancel()
        await asyncio.gather(
            *writing, *(producer.discard() for producer in producers), return_exceptions=True
        )
        await asyncio.to_thread(broker.start)
        producers = [_producer(bootstrap, f"restarted-{number}", clients) for number in range(6)]
        await asyncio.gather(*(producer.fence() for producer in producers))
        await asyncio.gather(*(_write(producer, "restarted", b"2") for producer in producers))
        await asyncio.gather(*(producer.discard() for producer in producers))
        await clients.stop()
        values = [item.value for item in kafka.read_all(bootstrap, "restarted", 1)]

        assert values == [b"1"] * 6 + [b"2"] * 6
        await until(lambda: asyncio.all_tasks() <= tasks, lambda: str(asyncio.all_tasks() - tasks))


async def test_many_partitions(bootstrap: str) -> None:
    """A consumer of 100 partitions has some dozens of sockets, and finishes all messages of each."""
    handler = Recorder()
    async with consuming(bootstrap, WIDE) as bench:
        before = _sockets()
        running = await bench.start(handler, concurrency=50)
        await running.ready(WIDE)

        assert _sockets() - before <= SOCKETS_MAX

        await asyncio.to_thread(_one_each, bootstrap, bench.accepted)
        await until(lambda: len(handler.done) == WIDE, lambda: f"{len(handler.done)} of {WIDE}")
        await running.stop()

        assert sorted(handler.done) == [(number, 0) for number in range(WIDE)]
        assert sum(kafka.committed(bootstrap, bench.group, bench.accepted, WIDE)) == WIDE
