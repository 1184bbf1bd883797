"""The state of a group is that of its last acknowledged message, exact over failures, takeovers and restarts."""

import asyncio

import pytest
from aiokafka.partitioner import murmur2
from confluent_kafka.admin import AdminClient, NewPartitions

from app.commands.consumers.forget import forget
from ringfence_client import Message
from ringfence_client.handlers.effects import STATE_BYTES_MAX
from ringfence_client.partition import progress_writer
from ringfence_client.sends import state_store
from ringfence_client.sends.state_store import StateCache
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.consumers.in_process import Bench, Recorder, consuming, interleaved, numbered
from tests.support.consumers.leases import take
from tests.support.kafka import Got, Sent
from tests.support.lanes import until

PARTITIONS = 3


def state_topic(bench: Bench) -> str:
    return wire_names.state_topic(bench.settings.app.id, bench.group, bench.accepted)


async def states(bench: Bench) -> dict[bytes | None, bytes | None]:
    """Return the last state record of each group."""
    return {record.key: record.value for record in await bench.read(state_topic(bench), bench.partitions)}


async def add(message: Message) -> None:
    """Keep a running total of the group."""
    message.state = b"%d" % (int(message.state or 0) + int(message.value or 0))


@pytest.fixture
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep no state in memory once it is written."""
    monkeypatch.setattr(state_store, "StateCache", lambda: StateCache(0))


async def test_a_running_total_over_restarts(bootstrap: str) -> None:
    """Each holder continues at its predecessor's state. The topic is compacted and has as many partitions as the accepted one."""
    async with consuming(bootstrap, PARTITIONS) as bench:
        for turn in range(3):
            for number, partition in enumerate(range(PARTITIONS)):
                group = kafka.at_home(partition, PARTITIONS)
                bench.send(*(Sent(None, group, b"%d" % (number + 1)) for _ in range(10)), partition=partition)
            running = await bench.start(Recorder(add))
            for partition in range(PARTITIONS):
                await bench.until_next(running, 10 * (turn + 1), partition)
            await running.stop()

        found = await bench.read(state_topic(bench), PARTITIONS)
        assert await states(bench) == {
            kafka.at_home(partition, PARTITIONS): b"%d" % (30 * (partition + 1))
            for partition in range(PARTITIONS)
        }
    for record in found:
        assert record.partition == kafka.home(record.key or b"", PARTITIONS)
    policy = kafka.topic_config(bootstrap, state_topic(bench), "cleanup.policy")
    assert policy == "compact"


async def test_more_partitions_are_refused(bootstrap: str) -> None:
    """Messages wait, and the consumer reports why, when the accepted topic has grown.

    Groups whose hash moved would begin without their states, and nobody would see it. Forgetting the consumer group deletes the topic: a
    new group of that name begins without states.
    """
    async with consuming(bootstrap, PARTITIONS) as bench:
        for partition in range(PARTITIONS):
            bench.send(*numbered(kafka.at_home(partition, PARTITIONS), 3), partition=partition)
        running = await bench.start(Recorder(add))
        for partition in range(PARTITIONS):
            await bench.until_next(running, 3, partition)
        await running.stop()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for grown in admin.create_partitions([NewPartitions(state_topic(bench), 2 * PARTITIONS)]).values():
            grown.result()
        running = await bench.start(Recorder(add))
        for partition in range(PARTITIONS):
            bench.send(*numbered(kafka.at_home(partition, PARTITIONS), 1), partition=partition)

        def reported() -> bool:
            return any("was given more partitions" in fault for fault in running.consumer.faults)

        await until(reported, lambda: str(running.consumer.faults))
        assert running.handler.done == []
        assert not running.consumer.ready
        await running.stop()
        assert await asyncio.to_thread(forget, bench.settings, bench.group, yes=True) == 0
        there = await asyncio.to_thread(admin.list_topics, timeout=10)
        assert state_topic(bench) not in there.topics


async def test_a_failed_attempt_changes_no_state(bootstrap: str) -> None:
    """Each attempt gets the state of the message before it."""
    seen: list[tuple[int, int, bytes | None]] = []

    async def work(message: Message) -> None:
        seen.append((message.offset, message.attempt, message.state))
        await add(message)
        if message.attempt < 3 and message.offset == 1:
            raise ValueError("not yet")

    async with consuming(bootstrap) as bench:
        bench.send(*(Sent(None, b"group", b"1") for _ in range(3)))
        running = await bench.start(Recorder(work), retry_delay=0.01, max_attempts=5)
        await bench.until_next(running, 3)
        await running.stop()

        assert seen == [(0, 1, None), (1, 1, b"1"), (1, 2, b"1"), (1, 3, b"1"), (2, 1, b"2")]
        assert await states(bench) == {b"group": b"3"}


async def test_none_deletes_a_state(bootstrap: str) -> None:
    """The next message of the group has no state, in this process and after a restart, and the topic has a tombstone."""
    seen: list[bytes | None] = []

    async def work(message: Message) -> None:
        seen.append(message.state)
        message.state = None if message.value == b"1" else message.value

    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 2))
        for count in (2, 4):
            running = await bench.start(Recorder(work))
            await bench.until_next(running, count)
            await running.stop()
            if count == 2:
                assert await states(bench) == {b"group": None}
                bench.send(*numbered(b"group", 2))

    assert seen == [None, b"0", None, b"0"]


async def test_a_state_that_is_too_large(bootstrap: str) -> None:
    """64 KiB are kept; a byte more fails the message, which becomes a dead letter and leaves the state as it was."""
    sizes: list[int] = []

    async def work(message: Message) -> None:
        sizes.append(len(message.state or b""))
        message.state = b"x" * int(message.value or 0)

    async with consuming(bootstrap) as bench:
        bench.send(
            *(Sent(None, b"group", b"%d" % size) for size in (STATE_BYTES_MAX, STATE_BYTES_MAX + 1, 1))
        )
        running = await bench.start(Recorder(work), max_attempts=1)
        await bench.until_next(running, 3)
        await running.stop()

        (letter,) = await bench.letters()
    assert sizes == [0, STATE_BYTES_MAX, STATE_BYTES_MAX]
    reason = dict(letter.headers)[wire_names.HEADER_REASON] or b""
    assert reason.startswith(b"ValueError: message.state has 65537 bytes: at most 65536")


async def test_a_message_without_a_group_has_no_state(bootstrap: str) -> None:
    """A message without a group reads None as its state; setting one fails the message with a reason."""
    seen: list[bytes | None] = []

    async def work(message: Message) -> None:
        seen.append(message.state)
        message.state = b"something"

    async with consuming(bootstrap) as bench:
        bench.send(Sent(None, None, b"1"))
        running = await bench.start(Recorder(work), max_attempts=1)
        await bench.until_next(running, 1)
        await running.stop()

        (letter,) = await bench.letters()
    assert seen == [None]
    assert b"this message has no group" in (dict(letter.headers)[wire_names.HEADER_REASON] or b"")


async def test_who_keeps_no_state_has_no_topic(bootstrap: str) -> None:
    """Reading states creates nothing, nor does a handler that only sends."""
    target = kafka.unique("sent")
    kafka.create_topics(bootstrap, {target: (1, {})})

    async def work(message: Message) -> None:
        assert message.state is None
        await message.send(target, message.value)

    async with consuming(bootstrap) as bench:
        bench.send(*interleaved(5, 2))
        running = await bench.start(Recorder(work), max_attempts=1)
        await bench.until_next(running, 10)
        await running.stop()

        assert await bench.letters() == []
        assert state_topic(bench) not in kafka.topics(bootstrap)


@pytest.mark.usefixtures("_forgetful")
async def test_states_that_are_not_cached_are_read_again(bootstrap: str) -> None:
    """Evicted states of this holder and its predecessors come from the topic, and totals stay exact."""
    async with consuming(bootstrap) as bench:
        groups, each = 20, 6
        records = [Sent(None, record.key, b"1") for record in interleaved(groups, each)]
        bench.send(*records)
        for turn in range(2):
            running = await bench.start(Recorder(add), concurrency=5)
            await bench.until_next(running, groups * each * (turn + 1))
            await running.stop()
            if not turn:
                bench.send(*records)

        assert await states(bench) == {b"group-%d" % group: b"%d" % (2 * each) for group in range(groups)}


async def test_a_total_over_a_takeover(bootstrap: str) -> None:
    """A holder that lost its lease writes nothing more. The state is the one that a stranger wrote since."""
    seen: list[bytes | None] = []

    async def work(message: Message) -> None:
        seen.append(message.state)
        await add(message)

    async with consuming(bootstrap) as bench:
        bench.send(*(Sent(None, b"group", b"1") for _ in range(5)))
        running = await bench.start(Recorder(work))
        await bench.until_committed(5)
        await take(bench)
        # As a successor might have, before it gave the partition back.
        kafka.send(bootstrap, state_topic(bench), [Sent(None, b"group", b"100")])
        bench.send(Sent(None, b"group", b"1"))
        await until(lambda: len(seen) == 6, lambda: str(seen))
        await running.stop()

        assert seen[-1] == b"100"
        assert await states(bench) == {b"group": b"101"}


async def test_states_outlive_compaction_and_growth_of_their_topic(bootstrap: str) -> None:
    """A topic with more or fewer partitions than the accepted one will do: groups are found by the same hash."""
    async with consuming(bootstrap) as bench:
        kafka.create_topics(bootstrap, {state_topic(bench): (5, {"cleanup.policy": "compact"})})
        records = [Sent(None, record.key, b"1") for record in interleaved(10, 3)]
        for turn in range(2):
            bench.send(*records)
            running = await bench.start(Recorder(add))
            await bench.until_next(running, 30 * (turn + 1))
            await running.stop()

        found: list[Got] = await bench.read(state_topic(bench), 5)
    assert {record.key: record.value for record in found} == {
        b"group-%d" % group: b"6" for group in range(10)
    }
    for record in found:
        assert record.partition == (murmur2(record.key) & 0x7FFFFFFF) % 5


async def test_a_state_topic_that_is_not_compacted_is_refused(bootstrap: str) -> None:
    """Groups wait if their state topic is not compacted, as Kafka would delete states, and the log names the remedy."""
    async with consuming(bootstrap) as bench:
        kafka.create_topics(bootstrap, {state_topic(bench): (1, {"cleanup.policy": "delete"})})
        handler = Recorder()
        running = await bench.start(handler)
        bench.send(Sent(None, b"group", b"1"), Sent(None, None, b"free"))
        await until(lambda: handler.offsets == [1], lambda: str(handler.begun))
        kafka.alter_topic(bootstrap, state_topic(bench), "cleanup.policy", "compact")
        await bench.until_next(running, 2)
        await running.stop()

        assert handler.offsets == [1, 0]


async def test_a_state_topic_that_is_deleted(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The states of a deleted topic are lost. The consumer creates the topic again, and messages continue."""
    monkeypatch.setattr(progress_writer, "TRANSACTION_LIMIT_S", 2.0)
    async with consuming(bootstrap) as bench:
        bench.send(Sent(None, b"group", b"1"))
        running = await bench.start(Recorder(add))
        await bench.until_committed(1)
        kafka.delete_topics(bootstrap, [state_topic(bench)])
        bench.send(Sent(None, b"group", b"1"))
        await bench.until_committed(2)
        await running.stop()

        assert await states(bench) == {b"group": b"1"}
