"""Batches: messages of one group in one call, acknowledged in one transaction; a batch that fails is tried one by one."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from ringfence_client import Message, Reject, Release
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.consumers.in_process import Bench, consuming, interleaved, numbered
from tests.support.consumers.processes import ConsumerProcess, consumers, noted
from tests.support.kafka import Sent
from tests.support.worker import configure, wait_for


class Batches:
    """A handler that notes its batches, sends each message, and counts them in the group's state."""

    def __init__(self, target: str = "") -> None:
        self.target = target
        self.begun: list[list[int]] = []
        self.attempts: list[list[int]] = []
        self.done: list[list[int]] = []

    async def __call__(self, messages: Sequence[Message]) -> None:
        offsets = [message.offset for message in messages]
        self.begun.append(offsets)
        self.attempts.append([message.attempt for message in messages])
        assert len({message.group for message in messages}) == 1
        if self.target:
            for message in messages:
                await message.send(self.target, message.value)
            messages[-1].state = b"%d" % (int(messages[0].state or 0) + len(messages))
        await self.decide(messages)
        self.done.append(offsets)

    async def decide(self, messages: Sequence[Message]) -> None:
        """Fail, or do not."""
        await asyncio.sleep(0)


def _target(bench: Bench) -> str:
    name = kafka.unique("batched")
    kafka.create_topics(bench.bootstrap, {name: (1, {})})
    return name


async def _values(bench: Bench, target: str) -> list[bytes | None]:
    return [record.value for record in await bench.read(target)]


async def _states(bench: Bench) -> dict[bytes | None, bytes | None]:
    topic = wire_names.state_topic(bench.settings.app.id, bench.group, bench.accepted)
    return {record.key: record.value for record in await bench.read(topic, bench.partitions)}


async def test_a_batch_has_messages_of_one_group_in_order(bootstrap: str) -> None:
    """A batch has up to its maximum without gaps; each message is in one batch, and each send of theirs is there once."""
    async with consuming(bootstrap) as bench:
        handler = Batches(_target(bench))
        bench.send(*interleaved(3, 100))
        running = await bench.start(handler, batch=8)
        await bench.until_committed(300)
        await running.stop()

        assert max(map(len, handler.done)) == 8
        for group in range(3):
            offsets = [offset for batch in handler.done for offset in batch if offset % 3 == group]
            assert offsets == list(range(group, 300, 3))
        assert len(await bench.read(handler.target)) == 300
        assert await _states(bench) == {b"group-%d" % group: b"100" for group in range(3)}


async def test_messages_without_a_group_come_alone(bootstrap: str) -> None:
    """Each message without a group comes alone in its list, because it has no order with any other."""
    async with consuming(bootstrap) as bench:
        handler = Batches()
        bench.send(*numbered(None, 20))
        running = await bench.start(handler, batch=8)
        await bench.until_committed(20)
        await running.stop()

        assert sorted(handler.done) == [[offset] for offset in range(20)]


@pytest.mark.parametrize("error", [ValueError("poison"), Reject("poison")], ids=["raise", "reject"])
async def test_the_poison_of_a_batch_is_found(bootstrap: str, error: Exception) -> None:
    """The other messages are handled alone, at their first attempt, and sent once; the poison alone becomes a dead letter."""

    class Poisoned(Batches):
        async def decide(self, messages: Sequence[Message]) -> None:
            if any(message.value == b"5" for message in messages):
                raise error

    async with consuming(bootstrap) as bench:
        handler = Poisoned(_target(bench))
        bench.send(*numbered(b"group", 20))
        running = await bench.start(handler, batch=10, max_attempts=2, retry_delay=0.01)
        await bench.until_committed(20)
        await running.stop()

        (letter,) = await bench.letters()
        headers = dict(letter.headers)
        assert letter.value == b"5"
        assert headers[wire_names.HEADER_ATTEMPTS] == (b"1" if isinstance(error, Reject) else b"2")
        assert await _values(bench, handler.target) == [b"%d" % number for number in range(20) if number != 5]
        assert await _states(bench) == {b"group": b"19"}
        assert [batch for batch in handler.done if batch[0] < 10] == [
            [offset] for offset in range(10) if offset != 5
        ]
        assert handler.attempts[: handler.begun.index([6])].count([2]) == (
            0 if isinstance(error, Reject) else 1
        )


async def test_a_released_batch_comes_again(bootstrap: str) -> None:
    """A released batch is not a failure: the same messages come again, at their first attempt."""

    class Releasing(Batches):
        async def decide(self, messages: Sequence[Message]) -> None:
            if len(self.begun) == 1:
                raise Release

    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 5))
        handler = Releasing(_target(bench))
        running = await bench.start(handler, batch=5)
        await bench.until_committed(5)
        await running.stop()

        assert {attempt for attempts in handler.attempts for attempt in attempts} == {1}
        assert await _values(bench, handler.target) == [b"%d" % number for number in range(5)]
        assert await bench.letters() == []


async def test_a_batch_whose_sends_cannot_be_written(bootstrap: str) -> None:
    """A message whose send the topic refuses becomes a dead letter, and the others of its batch are sent."""

    class Large(Batches):
        async def decide(self, messages: Sequence[Message]) -> None:
            for message in messages:
                if message.value == b"3":
                    await message.send(self.target, b"x" * 2_000_000)

    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 6))
        handler = Large(_target(bench))
        running = await bench.start(handler, batch=6, max_attempts=1)
        await bench.until_committed(6)
        await running.stop()

        (letter,) = await bench.letters()
        assert letter.value == b"3"
        assert b"is a record of about" in (dict(letter.headers)[wire_names.HEADER_REASON] or b"")
        assert await _values(bench, handler.target) == [b"0", b"1", b"2", b"4", b"5"]


async def test_a_plain_function_takes_batches(bootstrap: str) -> None:
    """A plain function takes batches in a thread, as a coroutine function does in the event loop."""
    done: list[list[bytes | None]] = []

    def work(messages: Sequence[Message]) -> None:
        for message in messages:
            message.send(target, message.value)
        done.append([message.value for message in messages])

    async with consuming(bootstrap) as bench:
        target = _target(bench)
        bench.send(*numbered(b"group", 30))
        running = await bench.start(work, batch=10)
        await bench.until_committed(30)
        await running.stop()

        assert await _values(bench, target) == [b"%d" % number for number in range(30)]
    assert max(map(len, done)) > 1


async def test_a_cancelled_batch_counts_for_nobody(bootstrap: str) -> None:
    """A time-out ends the call, its messages are tried one by one, and only one that hangs alone has failed."""

    class Hanging(Batches):
        async def decide(self, messages: Sequence[Message]) -> None:
            if any(message.value == b"2" for message in messages):
                await asyncio.Event().wait()

    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 4))
        handler = Hanging(_target(bench))
        running = await bench.start(handler, batch=4, max_attempts=1, handler_timeout=0.5)
        await bench.until_committed(4)
        await running.stop()

        (letter,) = await bench.letters()
        assert letter.value == b"2"
        assert await _values(bench, handler.target) == [b"0", b"1", b"3"]
        assert {attempt for attempts in handler.attempts for attempt in attempts} == {1}


@pytest.mark.long
def test_a_crash_in_a_batch(bootstrap: str, tmp_path: Path) -> None:
    """Messages of a crashed batch come again, each is sent once, and those that were only in the batch do not become dead letters."""
    name = kafka.unique("crash")
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": 1}])
    target = kafka.unique("batched")
    kafka.create_topics(bootstrap, {target: (1, {})})
    process = ConsumerProcess(
        config, "c", name, f"{name}-group", "--batch", "10", "--lease-timeout", "3", "--session-timeout", "2", "--max-attempts", "2",
        handler="tests.support.consumers.sending_handlers:dies_in_a_batch",
        environment={"TARGET": target, "DIED": str(tmp_path / "died")},
    )  # fmt: skip
    with consumers(process):
        kafka.send(
            bootstrap, f"{name}.accepted", [Sent(None, b"group", b"%d" % number) for number in range(30)]
        )
        assert process.wait_end() == -9
        process.start()
        wait_for(
            lambda: kafka.committed(bootstrap, f"{name}-group", f"{name}.accepted")[0] >= 30, process.log
        )
        assert process.stop() == 0

    assert [record.value for record in kafka.read_all(bootstrap, target, 1)] == [
        b"%d" % number for number in range(30)
    ]
    sizes = [int(line) for line in noted(process.handled)]
    assert max(sizes) > 1
