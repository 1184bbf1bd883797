"""Batches: messages of one group in one call, acknowledged in one transaction; a batch that fails is tried one by one.

Bench and consumer give a handler the same messages, with the same outcome.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from ringfence_client import ConsumerOptions, Message, PartNumber, Reject
from ringfence_client.testing import AsyncHandlerBench, message
from ringfence_client.testing.messages import accepted_record
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.consumers.in_process import Bench, Recorder, consuming, interleaved, numbered
from tests.support.kafka import Sent


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


@pytest.mark.parametrize(
    "error", [ValueError("poison"), Reject("poison"), TimeoutError()], ids=["raise", "reject", "hang"]
)
async def test_the_poison_of_a_batch_is_found(bootstrap: str, error: Exception) -> None:
    """The other messages are handled alone, at their first attempt, and sent once; the poison alone becomes a dead letter."""
    hangs = isinstance(error, TimeoutError)

    class Poisoned(Batches):
        async def decide(self, messages: Sequence[Message]) -> None:
            if any(message.value == b"5" for message in messages):
                await asyncio.sleep(3_600 if hangs else 0)
                raise error

    async with consuming(bootstrap) as bench:
        handler = Poisoned(_target(bench))
        bench.send(*numbered(b"group", 20))
        limit = {"handler_timeout": 2.0} if hangs else {}
        running = await bench.start(handler, batch=10, max_attempts=2, retry_delay=0.01, **limit)
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


PARTITIONS = 3
OPTIONS: dict[str, Any] = {
    "concurrency": 4, "max_attempts": 3, "retry_delay": 0.01, "retry_jitter": 0.0, "reject_on": (KeyError,),
}  # fmt: skip


def given() -> list[Message]:
    """Messages of three groups and of none, with everything that a message can have."""
    return [
        message("1", group="alice", duplicate_id="a-1"),
        message("fail once", group="alice"),
        message("2", group="alice", headers={"trace": "x"}, part=PartNumber(1, 2)),
        message("3", group="bob", key="order-7"),
        message("reject", group="bob"),
        message("not known", group="bob"),
        message("4", group="bob", source="elsewhere/2/99"),
        message("broken", group="carol"),
        message("delete", group="carol"),
        message("6"),
        message("large", group="alice"),
    ]


def by_group(records: Iterable[Any]) -> dict[bytes | None, list[tuple[Any, ...]]]:
    """Places and contents, in order; sends of this handler name their group in the key, or a header."""
    found: dict[bytes | None, list[tuple[Any, ...]]] = defaultdict(list)
    for item in records:
        headers = tuple((name, value) for name, value in item.headers)
        found[dict(headers).get("group")].append((item.partition, item.key, item.value, headers))
    return dict(found)


class Worker:
    """A handler that sends to an address and to a topic, keeps a state, and fails in every way."""

    def __init__(self, ledger: str, audit: str) -> None:
        self.ledger = ledger
        self.audit = audit
        self.attempts: dict[bytes | None, list[tuple[Any, ...]]] = defaultdict(list)
        """Arguments of the handler, by group."""

    async def work(self, item: Message) -> None:
        self.attempts[item.group].append(
            (item.offset, item.attempt, item.first_here, item.state, item.source, str(item.part), item.key, item.duplicate_id)
        )  # fmt: skip
        headers = {"group": item.group or b"none"}
        await item.send(self.ledger, item.value, key=item.group, headers=headers)
        await item.send(self.audit, item.value, headers=headers, duplicate_id=f"audit-{item.offset}")
        if item.group is not None:
            item.state = (item.state or b"") + b"+" + (item.value or b"")
        match item.value:
            case b"fail once" if item.attempt == 1:
                raise ConnectionError("try again")
            case b"reject":
                raise Reject("not wanted")
            case b"not known":
                raise KeyError("name")
            case b"broken":
                raise ValueError("broken")
            case b"delete":
                item.state = None
            case b"large":
                await item.send(self.ledger, bytes(2 * 2**20))


async def test_bench_and_consumer_agree(bootstrap: str) -> None:
    """Bench and consumer agree in the sends, their partitions, keys, headers and IDs; in states, dead letters and attempts."""
    ledger, audit = kafka.unique("ledger"), kafka.unique("audit")
    kafka.create_topics(bootstrap, {ledger: (PARTITIONS, {}), audit: (PARTITIONS, {})})
    worker, model = Worker(ledger, audit), Worker(ledger, audit)
    async with consuming(bootstrap, others=[{"name": ledger}]) as real:
        address = real.settings.addresses[0]
        records = [accepted_record(item, address, number) for number, item in enumerate(given())]
        real.send(*(Sent(None, item.key, item.value, item.headers, item.timestamp) for item in records))
        running = await real.start(Recorder(worker.work), **OPTIONS)
        await real.until_next(running, len(records))
        await running.stop()

        async with AsyncHandlerBench(
            Recorder(model.work),
            ConsumerOptions(**OPTIONS),
            settings=real.settings,
            address=address.name,
            consumer_group=real.group,
            topics={ledger: PARTITIONS, audit: PARTITIONS},
        ) as bench:
            await bench.deliver(*given())

        assert model.attempts == worker.attempts
        for topic in (ledger, audit):
            sent = by_group(await real.read(topic, PARTITIONS))
            assert by_group(item for item in bench.sent if item.topic == topic) == sent
            assert sum(map(len, sent.values())) == 7
        letters = {item.value: (item.key, sorted(item.headers, key=repr)) for item in await real.letters()}
        assert {
            item.value: (item.group, sorted(item.headers, key=repr)) for item in bench.dead_letters
        } == letters
        assert set(letters) == {b"reject", b"not known", b"broken", b"large"}
        state_topic = wire_names.state_topic(real.settings.app.id, real.group, real.accepted)
        states = {item.key or b"": item.value for item in await real.read(state_topic)}
        assert {group: bench.state(group) for group in states} == states
        assert states == {b"alice": b"+1+fail once+2", b"bob": b"+3+4", b"carol": None}
