"""The progress of a partition in which thousands of messages fail: it is written, read, and taken over."""

import asyncio
from typing import Any

import pytest

from ringfence_client import Message, Reject, Retry
from ringfence_client.progress.record_parts import WHOLE_MAX
from ringfence_client.window import window
from tests.support import kafka
from tests.support.consumers.in_process import Bench, Recorder, consuming
from tests.support.kafka import Sent
from tests.support.lanes import until

LATER_S = 3_600.0
OPTIONS: dict[str, Any] = {"concurrency": 50, "max_attempts": 100, "breaker": False}


async def _fails(message: Message) -> None:
    await asyncio.sleep(0)
    if message.value == b"sick":
        raise Retry("sick", delay=LATER_S)


def _messages(count: int, first: int = 0) -> list[Sent]:
    """Messages of which every second fails, each in a group of its own: a run of finished offsets is between any two."""
    return [
        Sent(None, b"%d" % index, b"well" if index % 2 else b"sick") for index in range(first, first + count)
    ]


async def _until_tried(bench: Bench, messages: int) -> None:
    counts = bench.running[-1].consumer.dispatcher.counts

    def tried() -> bool:
        bench.running[-1].check()
        return counts["finished"] + counts["failed"] >= messages

    await until(tried, lambda: f"{counts}, {bench.running[-1].consumer.faults}", 240)


async def test_failing_messages_beyond_a_whole_record(bootstrap: str) -> None:
    """Nothing is lost or done again on a change of holder with more failing messages than a whole record names."""
    messages = 3 * WHOLE_MAX
    async with consuming(bootstrap) as bench:
        bench.send(*_messages(messages))
        first = await bench.start(_fails, **OPTIONS)
        await _until_tried(bench, messages)
        await first.stop()
        progress = await bench.agreed()

        assert dict(progress.attempts) == dict.fromkeys(range(0, messages, 2), 1)
        assert {failure.attempts for failure in progress.failures.values()} == {1}
        assert progress.parts, "so many do not fit a record"

        bench.send(*_messages(2, messages))
        handler = Recorder(_fails)
        second = await bench.start(handler, **OPTIONS)
        await until(
            lambda: messages + 1 in handler.offsets,
            lambda: f"{handler.offsets} {second.consumer.faults}",
            240,
        )
        await second.stop()

        assert [offset for offset in handler.offsets if offset < messages] == [], (
            "what finished is not done again"
        )
        assert {attempt for _, offset, attempt in handler.begun if offset < messages} <= {2}
        held = await bench.agreed()
        assert held.token == 2
        assert held.attempts.keys() == {*range(0, messages, 2), messages}


async def test_warns_before_it_is_full(bootstrap: str, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """The log warns when many messages wait, and at the bound health reports that healthy groups wait too."""
    monkeypatch.setattr(window, "PARKED_MAX", 200)
    async with consuming(bootstrap) as bench:
        bench.send(*(Sent(None, b"%d" % index, b"sick") for index in range(190)))
        running = await bench.start(_fails, **OPTIONS, records_max=10)
        await _until_tried(bench, 190)
        held = running.consumer.partitions[0]
        await until(lambda: held.window.crowding >= 0.8, lambda: str(held.window.counts))
        await held.writer.persisted()

        assert [message for message in caplog.messages if "of the limit of a partition" in message]
        assert running.consumer.faults == []

        bench.send(*(Sent(None, b"%d" % index, b"sick") for index in range(190, 400)))
        await until(lambda: held.window.crowding >= 1, lambda: str(held.window.counts))

        assert any("fetching from it pauses" in fault for fault in running.consumer.faults)


def _refusals(caplog: pytest.LogCaptureFixture) -> int:
    return sum("progress not written" in message for message in caplog.messages)


async def test_refused_progress_is_named(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """The error names the progress topic, and no other, if it takes too little while dead letters are written."""
    refused = asyncio.Event()

    async def rejects(message: Message) -> None:
        await refused.wait()
        if message.value == b"sick":
            raise Reject("sick")

    async with consuming(bootstrap) as bench:
        handler = Recorder(rejects)
        running = await bench.start(handler, concurrency=4)
        held = running.consumer.partitions[0]
        topic = f"{bench.name}-app-progress"
        bench.send(*_messages(40))
        await until(lambda: len(handler.begun) == 4, lambda: str(handler.begun))
        kafka.alter_topic(bootstrap, topic, "max.message.bytes", "100")
        await until(
            lambda: f"{topic} has max.message.bytes=100" in held.writer.fault, lambda: held.writer.fault
        )
        refused.set()
        await until(lambda: len(held.writer.letters) > 0, lambda: "no dead letter waits")
        begun = _refusals(caplog)
        await until(
            lambda: _refusals(caplog) > begun + 1, lambda: held.writer.fault
        )  # one of them with letters

        assert held.writer.letters.fault == ""
        assert not any(bench.dead_letters in fault for fault in running.consumer.faults)

        kafka.alter_topic(bootstrap, topic, "max.message.bytes", "1048588")
        await bench.until_next(running, 40)

        assert len(await bench.letters()) == 20
