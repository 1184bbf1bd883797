import asyncio
import gc
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import mode
import pytest
from faust.transport.drivers import aiokafka as driver

from app.worker.fetch.transport import BatchConsumer, BatchConsumerThread


class Handing(mode.Service):  # type: ignore[misc]
    """The part of a consumer that hands messages over, with lanes whose buffers are full."""

    _drain_messages = BatchConsumer._drain_messages
    _hand_over = BatchConsumer._hand_over

    def __post_init__(self) -> None:
        self.suspend_flow = asyncio.Event()
        self.begun = asyncio.Event()
        self.ended = SimpleNamespace(should_stop=False)

    async def _next_messages(self) -> list[str]:
        return [] if self.ended.should_stop else ["one", "other"]

    async def callback(self, _message: str) -> None:
        self.begun.set()
        await asyncio.Event().wait()


async def test_rebalance_while_buffers_are_full() -> None:
    """A rebalance drops messages that are being handed over, without a trace in the log. They will be fetched again."""
    said: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: said.append(context))
    consumer = Handing()
    draining = asyncio.create_task(consumer._drain_messages(consumer.ended))
    await consumer.begun.wait()
    consumer.ended.should_stop = True
    consumer.suspend_flow.set()
    await draining
    for _ in range(3):  # those that were cancelled end
        await asyncio.sleep(0)
    gc.collect()

    assert said == []


async def test_stopped_between_two_attempts_to_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aiokafka cancels a fetch and lets that out: the thread ends in order all the same, connections closed."""
    close = AsyncMock()
    monkeypatch.setattr(
        driver.AIOKafkaConsumerThread, "on_thread_stop", AsyncMock(side_effect=asyncio.CancelledError)
    )
    thread = BatchConsumerThread.__new__(BatchConsumerThread)
    thread._consumer = SimpleNamespace(_client=SimpleNamespace(close=close))
    thread._keeping = asyncio.create_task(asyncio.sleep(0))
    await thread.on_thread_stop()

    close.assert_awaited_once()
