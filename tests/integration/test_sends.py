"""Sends of handlers: each record once, with the acknowledgement of its message, in order, to the requested place."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from ringfence_client import Message, Reject, Retry
from ringfence_kafka.process import failpoints
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.consumers.in_process import Bench, Recorder, consuming, interleaved, numbered
from tests.support.kafka import Got, Sent
from tests.support.lanes import until

PARTITIONS = 3


def target_of(bootstrap: str, partitions: int = 1, **config: str) -> str:
    """Make a new topic, and return its name."""
    name = kafka.unique("sent")
    kafka.create_topics(bootstrap, {name: (partitions, config)})
    return name


def values(records: list[Got]) -> list[str]:
    return [(record.value or b"").decode() for record in records]


# -- with the acknowledgement -------------------------------------------------------------------------------------


async def test_a_failed_attempt_sends_nothing(bootstrap: str) -> None:
    """Readers see the sends of the attempt that acknowledged its message. Failed, retried and released attempts send nothing."""
    target = target_of(bootstrap)

    async def work(message: Message) -> None:
        await message.send(target, f"{message.offset}:{len(handler.attempts(message.offset))}")
        if len(handler.attempts(message.offset)) > 1:
            return
        match message.offset:
            case 0:
                raise ValueError("once")
            case 1:
                raise Retry("once", delay=0)
            case 2:
                message.release()

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        bench.send(*interleaved(4, 1))
        await bench.handle(handler, 4, retry_jitter=0.0)

        assert sorted(values(await bench.read(target))) == ["0:2", "1:2", "2:2", "3:1"]
        assert await bench.letters() == []


@pytest.mark.parametrize("error", [Reject("not wanted"), ValueError("broken")], ids=["reject", "raise"])
async def test_a_dead_letter_and_a_send_exclude_each_other(bootstrap: str, error: Exception) -> None:
    """A message that becomes a dead letter has sent nothing and kept no state. The next message of its group sends."""
    target = target_of(bootstrap)

    async def work(message: Message) -> None:
        await message.send(target, message.value)
        message.state = b"%s+%s" % (message.state or b"", message.value)
        if message.offset == 1:
            raise error

    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 3))
        await bench.handle(Recorder(work), 3, max_attempts=2, retry_delay=0.01)

        assert values(await bench.read(target)) == ["0", "2"]
        assert [letter.value for letter in await bench.letters()] == [b"1"]
        (state,) = values(await bench.read(state_topic(bench)))[-1:]
        assert state == "+0+2"


def state_topic(bench: Bench) -> str:
    return wire_names.state_topic(bench.settings.app.id, bench.group, bench.accepted)


async def test_sends_and_progress_are_one_transaction(bootstrap: str) -> None:
    """Sends and states of many handlers are committed at once with the offset: readers see none of them before, and then all."""
    target, groups = target_of(bootstrap), 50
    free, decided = asyncio.Event(), asyncio.Event()
    seen: list[tuple[int, int]] = []

    async def work(message: Message) -> None:
        await message.send(target, message.value)
        message.state = message.value
        await free.wait()

    async def end_together(point: str, lane: str) -> None:
        """Let the handlers end between two snapshots: this transaction's, and the next one's."""
        if len(handler.begun) == groups and not free.is_set():
            free.set()
            await bench.until_next(running, groups)

    async def look(point: str, lane: str) -> None:
        written = await asyncio.to_thread(count_now, bootstrap, target, "read_uncommitted")
        if written and not decided.is_set():
            seen.append((written, await asyncio.to_thread(count_now, bootstrap, target, "read_committed")))
            decided.set()

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        running = await bench.start(handler, concurrency=groups)
        removals = [
            failpoints.install("before-send", bench.lease_name(), end_together),
            failpoints.install("before-commit", bench.lease_name(), look),
        ]
        try:
            bench.send(*interleaved(groups, 1))
            await until(decided.is_set, lambda: f"{len(handler.done)} of {groups} messages are done")
        finally:
            for remove in removals:
                remove()
        await running.stop()

        assert seen == [(groups, 0)]
        assert len(await bench.read(target)) == len(await bench.read(state_topic(bench))) == groups


def count_now(bootstrap: str, topic: str, isolation: str) -> int:
    """Count the records of partition 0 that a reader of this isolation gets at once."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        count = 0
        while not (message := consumer.poll(kafka.WAIT_S)).error():  # type: ignore[union-attr]
            count += 1
        assert message is not None
        return count
    finally:
        consumer.close()


async def test_sends_of_a_group_are_in_its_order(bootstrap: str) -> None:
    """Sends without a key go to their group's partition, so that all of a group are in one, in the order of its messages."""
    target = target_of(bootstrap, PARTITIONS)

    async def work(message: Message) -> None:
        await asyncio.sleep(0.001 * (message.offset % 3))
        group = (message.group or b"").decode()
        for part in "ab":
            await message.send(target, f"{group} {message.value!r} {part}")

    async with consuming(bootstrap) as bench:
        bench.send(*interleaved(20, 10))
        await bench.handle(Recorder(work), 200, concurrency=10)

        found = await bench.read(target, PARTITIONS)
    by_group: dict[str, list[Got]] = defaultdict(list)
    for record in found:
        by_group[values([record])[0].partition(" ")[0]].append(record)
    assert len(by_group) == 20
    for group, records in by_group.items():
        assert {record.partition for record in records} == {kafka.home(group.encode(), PARTITIONS)}
        assert values(records) == [f"{group} {b'%d' % turn!r} {part}" for turn in range(10) for part in "ab"]


async def test_a_record_arrives_as_it_was_sent(bootstrap: str) -> None:
    """Key, value, headers, timestamp and partition arrive unchanged; a key chooses the partition that a Java producer chooses."""
    target = target_of(bootstrap, PARTITIONS)
    keys = [b"key-%d" % number for number in range(5)]

    async def work(message: Message) -> None:
        for key in keys:
            await message.send(
                target, "text", key=key, headers={"colour": "red", "none": None}, timestamp=1_234_567
            )
        await message.send(
            target, None, key=keys[0].decode(), partition=2, headers=[("a", b"1"), ("a", b"2")]
        )

    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 1))
        await bench.handle(Recorder(work), 1)

        found = await bench.read(target, PARTITIONS)
    last = next(record for record in found if record.value is None)
    assert (last.partition, last.key, last.headers) == (2, keys[0], [("a", b"1"), ("a", b"2")])
    others = [record for record in found if record is not last]
    assert {record.key: record.partition for record in others} == {
        key: kafka.home(key, PARTITIONS) for key in keys
    }
    for record in others:
        assert (record.value, record.headers, record.timestamp) == (
            b"text",
            [("colour", b"red"), ("none", None)],
            1_234_567,
        )


async def test_a_plain_function_sends_from_its_thread(bootstrap: str) -> None:
    """A plain function calls the same method, without await, and sets the state."""
    target = target_of(bootstrap)

    def work(message: Message) -> None:
        message.send(target, message.value)
        message.state = str(int(message.state or 0) + 1)

    async with consuming(bootstrap) as bench:
        bench.send(*interleaved(5, 20))
        await bench.handle(work, 100)

        assert len(await bench.read(target)) == 100
        latest = {record.key: record.value for record in await bench.read(state_topic(bench))}
        assert latest == {b"group-%d" % group: b"20" for group in range(5)}


# -- duplicate IDs --------------------------------------------------------------------------------------------------


@pytest.fixture
async def billed(bootstrap: str) -> AsyncIterator[tuple[Bench, str]]:
    """Yield an address that is consumed, and another that its handlers send to."""
    billing = kafka.unique("billing")
    address = {"name": billing, "duplicate_id_headers": ["x-id", "_AMQ_DUPL_ID"]}
    kafka.create_topics(bootstrap, {billing: (PARTITIONS, {})})
    async with consuming(bootstrap, others=[address]) as bench:
        yield bench, billing


async def test_a_replay_sends_the_same_ids(billed: tuple[Bench, str]) -> None:
    """Another consumer that handles the messages again, from another offset, sends the same IDs."""
    bench, billing = billed

    async def work(message: Message) -> None:
        await message.send(billing, message.value)

    now = round(time.time() * 1000)  # a replay keeps timestamps
    records = [
        Sent(None, b"group", b"%d" % number, (("_RF_SOURCE", b"orders/1/%d" % number),), now)
        for number in range(5)
    ]
    bench.send(*records, *records)
    await bench.handle(Recorder(work), 10)

    found = await bench.read(billing, PARTITIONS)
    ids = [dict(record.headers)["x-id"] for record in found]
    assert len(found) == 10
    assert len(set(ids)) == 5
    assert ids[:5] == ids[5:]
