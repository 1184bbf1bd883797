import asyncio

import pytest

from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.idempotent import IdempotentProducer
from ringfence_kafka.producer import TransactionalProducer


@pytest.mark.parametrize("failing", ["abort_transaction", "stop"])
async def test_discarded_whatever_was_cancelled(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """A future that aiokafka waits for was cancelled by a time limit: who discards is not cancelled, and all the rest is ended."""
    producer = TransactionalProducer(KafkaSettings(), "t", "lane")
    producer._in_transaction = True
    called = []

    async def call(name: str) -> None:
        called.append(name)
        if name == failing:
            raise asyncio.CancelledError

    monkeypatch.setattr(producer._producer, "abort_transaction", lambda: call("abort_transaction"))
    monkeypatch.setattr(producer._producer, "stop", lambda: call("stop"))
    await producer.discard()

    assert called == ["abort_transaction", "stop"]


async def test_discarded_by_who_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections are closed all the same, and it is cancelled then."""
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
