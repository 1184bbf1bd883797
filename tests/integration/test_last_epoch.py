"""A fence over an open transaction whose epoch is the last one (KAFKA-18660, KAFKA-19367)."""

import asyncio
from typing import Final

import pytest
from aiokafka import TopicPartition
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaError
from aiokafka.protocol.transaction import InitProducerIdRequest

from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.process import failpoints
from ringfence_kafka.producer.transactional import FencedError, Outgoing, TransactionalProducer
from tests.support import kafka

GROUP: Final = "last-epoch"
LAST: Final = 2**15 - 2
"""Of a transaction. The next one, the largest of its type, is the fence's alone."""
AT_ONCE: Final = 50
"""Requests that wait on one connection, where the broker answers one after the other."""


def _producer(bootstrap: str, name: str) -> TransactionalProducer:
    return TransactionalProducer(KafkaSettings(bootstrap_servers=bootstrap), name, name)


async def _write(producer: TransactionalProducer, topic: str, value: str) -> None:
    batches = []
    for partition in (0, 1):
        builder = producer.builder()
        builder.append(timestamp=None, key=b"k", value=value.encode(), headers=[])
        batches.append(Outgoing(topic, partition, builder))
    await producer.transact(batches, {TopicPartition(topic, 0): 1}, GROUP)


def _who(producer: TransactionalProducer) -> tuple[int, int]:
    manager = producer._producer._txn_manager
    return manager.producer_id, manager.producer_epoch


async def _raise_epoch(bootstrap: str, name: str, goal: int) -> None:
    """Initialise a transactional ID until its epoch is ``goal``."""
    producer = _producer(bootstrap, name)
    await producer.fence()
    inner = producer._producer
    node = inner._sender._coordinators[CoordinationType.TRANSACTION]

    async def initialise() -> int:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        answer = await inner.client.send(node, request, group=ConnectionGroup.COORDINATION)
        assert answer.error_code == 0
        return int(answer.producer_epoch)

    _, epoch = _who(producer)
    while epoch < goal:
        count = min(AT_ONCE, goal - epoch)
        epoch = max(await asyncio.gather(*(initialise() for _ in range(count))))
    assert epoch == goal
    await producer.discard()


@pytest.mark.long
@pytest.mark.usefixtures("transactions")
async def test_fenced_in_the_last_epoch(bootstrap: str) -> None:
    """The fence gets another producer ID and goes on; nothing of the open transaction is ever read, and its holder writes nothing more."""
    topic, name = kafka.unique("last-epoch"), kafka.unique("last-epoch")
    kafka.create_topics(bootstrap, {topic: (2, {})})
    other = _producer(bootstrap, kafka.unique("last-epoch"))
    await other.fence()
    await _write(other, topic, "before")
    await other.discard()
    await _raise_epoch(bootstrap, name, LAST - 1)
    former, late = _producer(bootstrap, name), _producer(bootstrap, name)
    await former.fence()
    assert _who(former)[1] == LAST
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hold(_point: str, _lane: str) -> None:
        reached.set()
        await go_on.wait()

    remove = failpoints.install("before-commit", name, hold)
    writing = asyncio.create_task(_write(former, topic, "never"))
    await asyncio.wait_for(reached.wait(), kafka.WAIT_S)
    remove()
    await late.fence()
    assert _who(late)[0] != _who(former)[0]
    for number in range(3):
        await _write(late, topic, f"after {number}")
    go_on.set()
    # Kafka says INVALID_PRODUCER_ID_MAPPING where the ID has another producer ID by now.
    with pytest.raises((FencedError, KafkaError)):
        await writing
    with pytest.raises(
        Exception, match=r"held by somebody else|InvalidProducerIdMapping|Invalid state|READY|FATAL"
    ):
        await _write(former, topic, "never either")
    await _write(late, topic, "last")
    await asyncio.gather(former.discard(), late.discard())

    read = kafka.read_all(bootstrap, topic, 2)
    values = [
        [(item.value or b"").decode() for item in read if item.partition == number] for number in (0, 1)
    ]
    assert values == [["before", "after 0", "after 1", "after 2", "last"]] * 2
