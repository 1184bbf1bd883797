"""Exceptions that send a message to the dead letters at once."""

import asyncio
import json
import logging

import pytest

from ringfence_client import Message
from ringfence_client.dispatch.circuit_breaker import CircuitBreaker
from ringfence_kafka.process.log_setup import TRACE
from ringfence_kafka.protocol import wire_names
from tests.support.consumers.in_process import Recorder, consuming
from tests.support.kafka import Sent
from tests.support.lanes import until

RUN = CircuitBreaker(1).run_needed
"""First attempts that open a breaker which has seen nothing yet."""
BAD = b"{"
"""Broken JSON."""


async def _parse(message: Message) -> None:
    """Fail for good at broken JSON, and once at an empty text."""
    if json.loads(message.value or b"") == "" and message.attempt == 1:
        raise ConnectionRefusedError


@pytest.mark.parametrize("way", ["flow", "park"])
async def test_a_dead_letter_at_once(bootstrap: str, caplog: pytest.LogCaptureFixture, way: str) -> None:
    """A listed error, or a subclass, makes a dead letter at once, with its reason and a trace in the log.

    Other errors are tried again.
    """
    handler = Recorder(_parse)
    async with consuming(bootstrap) as bench:
        bench.send(
            Sent(None, b"bad", BAD),
            Sent(None, b"bad", b"1"),
            Sent(None, b"other", b'""'),
            Sent(None, b"other", b"2"),
        )
        running = await bench.start(
            handler, reject_on=(KeyError, ValueError), max_attempts=5, retry_jitter=0.0, on_dead_letter=way
        )
        if way == "park":
            held = running.consumer.partitions[0]
            await until(
                lambda: list(held.window.redrives.blocked) == [0] and len(handler.done) == 2,
                lambda: str(handler.begun),
            )
        else:
            await bench.until_next(running, 4)
        await running.stop()

        (letter,) = await bench.letters()
        headers = dict(letter.headers)
        assert (letter.key, letter.value) == (b"bad", BAD)
        assert (headers[wire_names.HEADER_REASON] or b"").startswith(
            b"JSONDecodeError: Expecting property name"
        )
        assert headers[wire_names.HEADER_ATTEMPTS] == b"1"
        (logged,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert "goes to the dead letters after 1 attempts: JSONDecodeError" in logged.getMessage()
        assert getattr(logged, TRACE).splitlines()[-1].startswith("json.decoder.JSONDecodeError")
        assert handler.attempts(0) == [1]
        assert handler.attempts(2) == [1, 2]
        assert sorted(handler.offsets) == ([1, 2, 3] if way == "flow" else [2, 3])
        assert handler.wrong == []


async def test_an_outage_behind_bad_messages(bootstrap: str) -> None:
    """Bad messages do not count as successes: the breaker opens although every other message is bad.

    No bad message is discarded meanwhile.
    """
    up = asyncio.Event()

    async def work(message: Message) -> None:
        json.loads(message.value or b"")
        if not up.is_set():
            raise ConnectionRefusedError

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        running = await bench.start(handler, concurrency=1, max_attempts=1, reject_on=(json.JSONDecodeError,))
        bench.send(
            *(
                Sent(None, b"%s %d" % (value, index), value)
                for index in range(2 * RUN)
                for value in (BAD, b"1")
            )
        )
        dispatcher = running.consumer.dispatcher
        await until(
            lambda: dispatcher.breaker.open or len(handler.begun) == 4 * RUN, lambda: str(handler.begun)
        )
        assert dispatcher.breaker.open
        opened = len(handler.begun)
        # A bad message comes before each of these probes.
        await until(lambda: len(handler.begun) >= opened + 4, lambda: "nothing is tried")
        assert dispatcher.breaker.open
        up.set()
        await bench.until_next(running, 4 * RUN)
        await running.stop()

        letters = await bench.letters()
        assert opened == 2 * RUN
        assert sum(letter.value == BAD for letter in letters) == 2 * RUN
        assert len(letters) == 2 * RUN + RUN - 1
        # Bad messages that came while it was open had another attempt after it.
        assert len(handler.attempts(opened)) > 1
        assert len(handler.done) == RUN + 1
