import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from aiokafka.errors import UnknownTopicOrPartitionError

from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.producer.idempotent import IdempotentProducer
from ringfence_kafka.producer.transactional import Outgoing, TransactionalProducer


@pytest.mark.parametrize("failing", ["abort_transaction", "stop"])
async def test_discarded_whatever_was_cancelled(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """A discard is not cancelled if a time limit cancelled a future of aiokafka, and still ends all the rest."""
    producer = TransactionalProducer(KafkaSettings(), "t", "lane")
    producer._in_transaction = True
    steps = Mock(abort_transaction=AsyncMock(), stop=AsyncMock())
    getattr(steps, failing).side_effect = asyncio.CancelledError
    for name in ("abort_transaction", "stop"):
        monkeypatch.setattr(producer._producer, name, getattr(steps, name))
    await producer.discard()

    assert [name for name, *_ in steps.mock_calls] == ["abort_transaction", "stop"]


async def test_discarded_by_who_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled discard still closes the connections, and then ends as cancelled."""
    producer = IdempotentProducer(KafkaSettings(), "b")
    closing, closed = asyncio.Event(), []

    async def close() -> None:
        closing.set()
        await asyncio.sleep(0.01)
        closed.append(True)

    monkeypatch.setattr(producer._producer.client, "close", close)
    discarding = asyncio.create_task(producer.discard())
    await closing.wait()
    discarding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await discarding

    assert closed == [True]


class Batch:
    """A batch of a transaction."""


@pytest.fixture
def _uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_uncollected")
async def test_failure_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane whose output is refused again and again has its batch once, and not once for each attempt."""
    producer = TransactionalProducer(KafkaSettings(), "t", "lane")

    async def nothing(*_: Any, **__: Any) -> None:
        """Succeed."""

    async def send(*_: Any, **__: Any) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(UnknownTopicOrPartitionError())
        return future

    for name in ("begin_transaction", "send_offsets_to_transaction", "send_batch"):
        monkeypatch.setattr(producer._producer, name, send if name == "send_batch" else nothing)
    monkeypatch.setattr("ringfence_kafka.producer.transaction_v1.require_partition", nothing)
    written = []
    for _ in range(3):
        batch = Batch()
        written.append(weakref.ref(batch))
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.transact([Outgoing("orders", 0, batch)], {}, "group")
        del batch
        await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert [reference_type() for reference_type in written] == [None] * 3
