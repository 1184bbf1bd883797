import asyncio

import pytest

from ringfence_kafka.config.settings import KafkaSettings
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
