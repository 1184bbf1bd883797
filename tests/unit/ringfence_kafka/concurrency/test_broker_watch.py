import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from aiokafka.errors import KafkaConnectionError

from ringfence_kafka.concurrency import broker_watch
from ringfence_kafka.concurrency.broker_watch import BrokerWatch
from ringfence_kafka.errors import BrokerUnavailableError, ConfigurationError

BACK = "the broker answers again after 0 s"
Asked = Callable[..., Awaitable[tuple[list[bool], list[str]]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Asked:
    """Run a watch over questions with these endings. Returns its state before each question, and its log lines."""
    monkeypatch.setattr(broker_watch, "INTERVAL_S", 0.0)

    async def run(
        *endings: Exception | None, denied: Callable[[], Awaitable[Exception | None]] | None = None
    ) -> tuple[list[bool], list[str]]:
        answers = list(endings)
        seen, enough = [], asyncio.Event()

        async def ask() -> None:
            seen.append(watched.away)
            if not answers:
                enough.set()
                await asyncio.Event().wait()
            if (error := answers.pop(0)) is not None:
                raise error

        watched = BrokerWatch(ask, logging.getLogger("ringfence.test"), "what runs goes on", denied)
        with caplog.at_level("INFO", "ringfence.test"):
            task = asyncio.create_task(watched.run())
            await asyncio.wait_for(enough.wait(), 10)
            task.cancel()
        return seen, [record.getMessage() for record in caplog.records]

    return run


async def test_away_and_back(asked: Asked) -> None:
    seen, said = await asked(None, OSError("gone"), TimeoutError(), None)

    assert seen == [False, False, True, True, False]
    assert said == ["the broker does not answer (OSError); what runs goes on", BACK]


async def test_a_connection_that_was_closed(asked: Asked) -> None:
    """A closed connection counts as absence only if the next one is closed too. An absent broker is not asked twice."""
    closed = KafkaConnectionError("closed")
    seen, said = await asked(None, closed, None, closed, closed, closed, None)

    assert seen == [False, False, False, False, False, True, True, False]
    assert said == ["the broker does not answer (KafkaConnectionError); what runs goes on", BACK]


@pytest.mark.parametrize(
    ("ending", "found", "said"),
    [
        (OSError("gone"), BrokerUnavailableError("it denies access"), ["it denies access"]),
        (OSError("gone"), None, []),
        (TimeoutError(), BrokerUnavailableError("it denies access"), []),
        (OSError("gone"), ConfigurationError("no such key"), ["no such key"]),
        (OSError("gone"), TimeoutError(), []),
    ],
)
async def test_why_it_lets_nobody_in(
    asked: Asked, ending: Exception, found: Exception | None, said: list[str]
) -> None:
    """A denial of access is logged once, if the reason can be found out."""

    async def denied() -> Exception | None:
        if isinstance(found, ConfigurationError | TimeoutError):
            raise found
        return found

    _, lines = await asked(ending, ending, None, denied=denied)

    assert lines[1:-1] == said
