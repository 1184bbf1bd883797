"""Topics that are deleted and created again under consumers: no message is skipped or mixed up."""

import asyncio

import pytest

from ringfence_client import Message
from ringfence_client.progress.progress_record import encode_key
from ringfence_client.progress.progress_topic import PARTITIONS
from tests.support import kafka
from tests.support.consumers.in_process import Bench, Recorder, consuming, numbered
from tests.support.kafka import Sent
from tests.support.lanes import until

RECREATED = "was deleted and created again"


def _recreate(bench: Bench, partitions: int = 1) -> None:
    kafka.recreate_topic(bench.bootstrap, bench.accepted, partitions)


def _new(count: int, groups: int = 5) -> list[Sent]:
    return [Sent(None, b"group-%d" % (index % groups), b"new %d" % index) for index in range(count)]


def _handled(handler: Recorder) -> set[bytes]:
    """Values of the new topic's messages that returned."""
    done = set(handler.done)
    return {
        message.value or b""
        for message in handler.messages
        if (message.partition, message.offset) in done and b"new" in (message.value or b"")
    }


async def test_between_two_runs(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """A recreated topic that has grown beyond the old position is read from its start, with nothing of the old one.

    The old topic left attempts, finished messages out of order, and a purge of a group, at offsets that the new one has too.
    """
    stuck = asyncio.Event()

    async def work(message: Message) -> None:
        if message.group == b"stuck":
            await stuck.wait()

    old, new = Recorder(work), Recorder()
    async with consuming(bootstrap) as bench:
        bench.send(Sent(None, b"stuck"), *numbered(b"a", 40))
        running = await bench.start(old, drain_timeout=0.2)
        await until(lambda: len(old.done) == 40, lambda: str(old.done))
        running.consumer.partitions[0].window.purge(b"group-1", 100)
        await running.stop()
        before = await bench.agreed()
        _recreate(bench)
        bench.send(*_new(120))
        await bench.handle(new, 120)
        after = await bench.agreed()

    assert (before.next, list(before.finished), dict(before.purged)) == (
        0,
        [(1, 41)],
        {b"group-1": (41, 100)},
    )
    assert new.offsets.count(0) == 1
    assert sorted(new.offsets) == list(range(120))
    assert {message.attempt for message in new.messages} == {1}
    assert {message.fence for message in new.messages} == {before.token + 1}
    assert after.next == 120
    assert after.topic_id != before.topic_id
    assert caplog.text.count(f"{bench.accepted} {RECREATED}: beginning at its start, 0") == 1


@pytest.mark.parametrize("count", [300, 60])
async def test_beneath_a_consumer(bootstrap: str, count: int) -> None:
    """The consumer notices the new topic within seconds, whether it has outgrown the old position by then or not."""
    handler = Recorder()
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"a", 100))
        running = await bench.start(handler)
        await bench.until_next(running, 100)
        token = running.consumer.partitions[0].fence.token
        _recreate(bench)
        bench.send(*_new(count))
        wanted = {item.value for item in _new(count)}
        await until(lambda: _handled(handler) == wanted, lambda: f"{len(_handled(handler))} of {count}", 8.0)
        await bench.until_next(running, count)
        await running.stop()
        progress = await bench.agreed()

    # Messages out of order do not count: those handled before the change was noticed come again.
    assert [item for item in handler.wrong if "at once" in item] == []
    assert progress.next == count
    assert progress.token == token + 1


async def test_with_other_partitions(bootstrap: str) -> None:
    """A consumer continues and reads all partitions after a change to more of them, then to fewer."""
    handler = Recorder()
    async with consuming(bootstrap, partitions=2) as bench:
        bench.send(*numbered(b"a", 20))
        running = await bench.start(handler)
        await bench.until_next(running, 20)
        for partitions in (4, 1):
            handler.messages.clear()
            handler.done.clear()
            _recreate(bench, partitions)
            for index in range(partitions):
                bench.send(
                    *(Sent(None, b"g", b"new %d %d" % (index, number)) for number in range(50)),
                    partition=index,
                )
            wanted = {b"new %d %d" % (index, number) for index in range(partitions) for number in range(50)}
            await until(lambda: _handled(handler) >= wanted, lambda: str(len(_handled(handler))), 25.0)  # noqa: B023
            await running.ready(partitions)
        await running.stop()


async def test_dead_letters_with_fewer_partitions(bootstrap: str) -> None:
    """Dead letters continue in a recreated topic with fewer partitions and smaller records, and nothing waits for good."""

    async def work(message: Message) -> None:
        message.reject("no")

    async with consuming(bootstrap, partitions=1) as bench:
        kafka.create_topics(bootstrap, {bench.dead_letters: (50, {})})
        bench.send(*(Sent(None, b"g-%d" % index) for index in range(4)))
        running = await bench.start(Recorder(work))
        await asyncio.to_thread(kafka.wait_count, bootstrap, bench.dead_letters, 4, 50)
        kafka.recreate_topic(bootstrap, bench.dead_letters, 1, **{"max.message.bytes": "2000"})
        bench.send(*(Sent(None, b"g-%d" % index, b"x" * 5000) for index in range(4)))
        await asyncio.to_thread(kafka.wait_count, bootstrap, bench.dead_letters, 4)
        await running.stop()
        letters = await bench.letters()

    assert {letter.key for letter in letters} == {b"g-%d" % index for index in range(4)}
    assert [(letter.value or b"")[:9] for letter in letters] == [b'{"bytes":'] * 4


@pytest.mark.parametrize("partitions", [8, pytest.param(3, marks=pytest.mark.long)])
async def test_progress_topic(bootstrap: str, partitions: int, caplog: pytest.LogCaptureFixture) -> None:
    """A running consumer writes its lease with its token into the new topic, even when idle; its successor continues from it."""
    first, second = Recorder(), Recorder()
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"a", 10))
        for _ in range(3):
            await bench.handle(first, 10)
        running = await bench.start(first)
        progress = f"{bench.name}-app-progress"
        kafka.recreate_topic(bootstrap, progress, partitions, **{"cleanup.policy": "compact"})
        await until(lambda: RECREATED in caplog.text, lambda: caplog.text)
        await until(
            lambda: sum(kafka.end_offsets(bootstrap, progress, partitions)) > 0, lambda: "no lease", 15.0
        )
        bench.send(*numbered(b"a", 5))
        await bench.until_next(running, 15)
        await running.stop()
        running = await bench.start(second)
        bench.send(*numbered(b"a", 5))
        await bench.until_next(running, 20)
        await running.stop()

    assert sorted(first.offsets) == list(range(15))
    assert sorted(second.offsets) == list(range(15, 20))
    assert {message.fence for message in second.messages} == {5}


async def test_progress_topic_with_retention(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """A consumer whose progress topic is recreated with retention reports it with the command, and is not healthy until that has run."""
    async with consuming(bootstrap) as bench:
        running = await bench.start(Recorder())
        progress = f"{bench.name}-app-progress"
        kafka.recreate_topic(bootstrap, progress, 8, **{"cleanup.policy": "delete"})
        await until(
            lambda: any("cleanup.policy=delete" in fault for fault in running.consumer.faults),
            lambda: caplog.text,
        )
        kafka.alter_topic(bootstrap, progress, "cleanup.policy", "compact")
        await until(lambda: running.consumer.ready, lambda: str(running.consumer.faults), 20.0)
        await running.stop()

    assert f"--topic {progress} --add-config cleanup.policy=compact" in caplog.text


async def test_progress_topic_that_grew(bootstrap: str) -> None:
    """Leases keep their partitions, tokens rise, and nothing finished is repeated when keys hash to other partitions.

    A consumer that starts later and one that ran all the time continue from each other.
    """
    stuck = asyncio.Event()

    async def work(message: Message) -> None:
        if message.group == b"stuck":
            await stuck.wait()

    first, second, third = Recorder(work), Recorder(work), Recorder(work)
    async with consuming(bootstrap, partitions=2) as bench:
        bench.send(Sent(None, b"stuck"), *numbered(b"a", 40))
        running = await bench.start(first, drain_timeout=0.2)
        await until(lambda: len(first.done) == 40, lambda: str(first.done))
        before = [_home(bench, index, PARTITIONS) for index in range(2)]
        count = next(
            index for index in range(9, 99) if all(_home(bench, n, index) != before[n] for n in range(2))
        )
        kafka.grow_topic(bootstrap, f"{bench.name}-app-progress", count)
        other = await bench.start(second, drain_timeout=0.2)
        await until(lambda: len(other.consumer.partitions) == 1, lambda: str(other.consumer.reasons))
        await running.stop()
        await other.ready(2)
        bench.send(*numbered(b"a", 5))
        await until(lambda: len(second.done) == 5, lambda: str(second.done))
        await other.stop()
        last = await bench.start(third)
        stuck.set()
        await bench.until_next(last, 46)
        await last.stop()
        written = await asyncio.to_thread(kafka.read_all, bootstrap, f"{bench.name}-app-progress", count)

    assert sorted(second.offsets) == list(range(41, 46))
    assert third.offsets == [0]
    assert first.messages[0].fence < second.messages[-1].fence < third.messages[0].fence
    assert {item.partition for item in written if item.key is not None} == set(before)


def _home(bench: Bench, partition: int, partitions: int) -> int:
    return kafka.home(encode_key(bench.group, bench.accepted, partition), partitions)
