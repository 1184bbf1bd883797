"""The parts of a transaction that reach aiokafka's own sender: aiokafka's objects, without a broker."""

import asyncio
import contextlib
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import ConnectionGroup
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import (
    KafkaConnectionError,
    NodeNotReadyError,
    ProducerClosed,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.metadata import MetadataResponse_v0
from aiokafka.protocol.transaction import EndTxnRequest, InitProducerIdRequest, TxnOffsetCommitRequest

from ringfence_kafka.producer.transaction_v1 import TransactionV1

NODE = 1
LOG = TopicPartition("log", 0)
OUT = TopicPartition("out", 0)


class Sender:
    """A producer that has its ID, and does not run: what its sender would send is asked for."""

    def __init__(self) -> None:
        self.producer = AIOKafkaProducer(transactional_id="tx", bootstrap_servers="localhost:1")
        self.manager: Any = self.producer._txn_manager
        self.accumulator: Any = self.producer._message_accumulator
        cluster = ClusterMetadata()
        topics = [(0, item.topic, [(0, 0, NODE, [NODE], [NODE])]) for item in (LOG, OUT)]
        cluster.update_metadata(MetadataResponse_v0([(NODE, "localhost", 1)], topics))
        self.accumulator._cluster = cluster
        self.send = self.producer.client.send = AsyncMock()
        self.way = TransactionV1(self.producer, "lane")
        self.manager.set_pid_and_epoch(7, 0)

    async def add(self, place: TopicPartition) -> "asyncio.Future[Any]":
        builder = self.producer.create_batch()
        builder.append(timestamp=None, key=None, value=b"v", headers=[])
        added: asyncio.Future[Any] = await self.accumulator.add_batch(builder, place, 1.0)
        return added

    def sent(self) -> list[TopicPartition]:
        """Return the partitions with batches that would go out now."""
        nodes, _ = self.accumulator.drain_by_nodes(ignore_nodes=set(), muted_partitions=frozenset())
        return sorted(nodes.get(NODE, {}))


END = EndTxnRequest("tx", 7, 0, True)
OFFSETS = TxnOffsetCommitRequest("tx", "group", 7, 0, [])


async def test_refused_in_part() -> None:
    """A transaction with a refused partition sends no batch outside it, and each waiting caller learns the reason."""
    sender = Sender()
    await sender.way.begin_transaction()
    both = [await sender.add(OUT), await sender.add(LOG)]
    assert sender.sent() == []
    sender.manager.error_transaction(TopicAuthorizationFailedError({"out"}))

    assert sender.sent() == []
    for future in both:
        with pytest.raises(TopicAuthorizationFailedError):
            await asyncio.wait_for(future, 1)


async def test_sent_again_after_its_transaction() -> None:
    """A batch that is to be sent again, of a transaction that has ended, is not sent in the next."""
    sender = Sender()
    await sender.way.begin_transaction()
    late = await sender.add(LOG)
    sender.manager.partition_added(LOG)
    nodes, _ = sender.accumulator.drain_by_nodes(ignore_nodes=set(), muted_partitions=frozenset())
    sender.manager.aborting_transaction()
    sender.manager.complete_transaction()
    await sender.way.begin_transaction()
    sender.accumulator.reenqueue(nodes[NODE][LOG])

    assert sender.sent() == []
    with pytest.raises(ProducerClosed):
        await asyncio.wait_for(late, 1)


@pytest.mark.parametrize("error", [KafkaConnectionError("closed"), RequestTimedOutError()])
@pytest.mark.parametrize("request_", [END, OFFSETS])
async def test_what_may_come_late(request_: Any, error: Exception) -> None:
    """A transaction whose answer was lost, for any reason, prevents another one in that epoch."""
    sender = Sender()
    await sender.way.begin_transaction()
    sender.send.side_effect = error
    with pytest.raises(type(error)):
        await sender.producer.client.send(NODE, request_, group=ConnectionGroup.COORDINATION)

    with pytest.raises(KafkaConnectionError, match="may still arrive"):
        await sender.way.begin_transaction()


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (END, NodeNotReadyError()),
        (END, None),
        (InitProducerIdRequest("tx", 1_000), KafkaConnectionError("closed")),
    ],
)
async def test_what_cannot_come_late(request_: Any, error: Exception | None) -> None:
    """Requests that were not sent, were answered, or belong to no transaction allow the next one."""
    sender = Sender()
    sender.send.side_effect = error
    with contextlib.nullcontext() if error is None else pytest.raises(type(error)):
        await sender.producer.client.send(NODE, request_)
    await sender.way.begin_transaction()

    assert sender.manager.is_in_transaction()
