"""Whether brokers answer is said once when they go and once when they are back."""

import asyncio
import logging

import pytest

from ringfence_kafka import watch
from ringfence_kafka.watch import BrokerWatch


async def test_away_and_back(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the question ends with: who asked goes on asking."""
    answers: list[Exception | None] = [None, OSError("gone"), TimeoutError(), None]
    seen, enough = [], asyncio.Event()
    monkeypatch.setattr(watch, "INTERVAL_S", 0.0)

    async def ask() -> None:
        seen.append(watched.away)
        if not answers:
            enough.set()
            await asyncio.Event().wait()
        if (error := answers.pop(0)) is not None:
            raise error

    watched = BrokerWatch(ask, logging.getLogger("ringfence.test"), "what runs goes on")
    with caplog.at_level("INFO", "ringfence.test"):
        task = asyncio.create_task(watched.run())
        await asyncio.wait_for(enough.wait(), 10)
        task.cancel()

    assert seen == [False, False, True, True, False]
    assert [each.getMessage() for each in caplog.records] == [
        "the broker does not answer (OSError); what runs goes on",
        "the broker answers again after 0 s",
    ]
