"""Leases in rebalances: no message runs beside itself, tokens rise, and an interrupted opening is repeated."""

import asyncio
import itertools
import threading
import time
from dataclasses import replace

import pytest
from aiokafka import TopicPartition

from ringfence_client import Message
from ringfence_client.progress import progress_record
from ringfence_client.progress.progress_record import Progress
from ringfence_client.progress.progress_topic import PARTITIONS
from tests.harness.checker.groups import judge
from tests.support import kafka
from tests.support.consumers.in_process import Bench, Recorder, consuming, numbered
from tests.support.consumers.leases import Journal, Outsider, take, values
from tests.support.lanes import LIMIT_S, until


async def _written(bench: Bench) -> list[tuple[int, Progress]]:
    """All records of partition 0, with their time in ms; compacted ones are missing."""
    key = progress_record.encode_key(bench.group, bench.accepted, 0)
    got = await asyncio.to_thread(kafka.read_all, bench.bootstrap, f"{bench.name}-app-progress", PARTITIONS)
    return [
        (item.timestamp, progress_record.decode(item.value)) for item in got if item.key == key and item.value
    ]


async def test_taken_while_suspended(bootstrap: str) -> None:
    """A consumer whose partition somebody took in a rebalance begins nothing under the old token, though it is assigned again."""
    free = asyncio.Event()

    async def work(message: Message) -> None:
        await free.wait()

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 5), *numbered(b"other", 5))
        running = await bench.start(handler, concurrency=1, lease_timeout=300.0, lease_idle=300.0)
        await until(lambda: len(handler.begun) == 1, lambda: str(handler.begun))
        held_partitions, partitions = running.consumer.held_partitions, [TopicPartition(bench.accepted, 0)]
        # Lines of aiokafka when the group is rebalanced.
        await held_partitions.revoked(partitions)
        free.set()
        await until(lambda: len(handler.done) == 1, lambda: str(handler.done))
        await running.consumer.partitions[0].writer.persisted()
        await take(bench)
        held_partitions.given(partitions)
        await bench.until_next(running, 10)

        assert [message.fence for message in handler.messages] == [1] + [3] * 9
        assert sorted(offset for _, offset, _ in handler.begun) == list(range(10))


@pytest.mark.parametrize("fenced", [False, True], ids=["undisturbed", "fenced-in-vain"])
async def test_acknowledged_while_draining(bootstrap: str, fenced: bool) -> None:
    """Acknowledgements of a draining holder count; the next holder begins after them, and waits for that partition alone.

    The same holds if a late third one fences the holder, and writes nothing.
    """
    free = asyncio.Event()
    journal = Journal()

    async def work(message: Message) -> None:
        if message.fence == 1:
            await free.wait()

    async with consuming(bootstrap, 2) as bench:
        for partition in range(2):
            for group in range(3):
                bench.send(*values(f"g{partition}-{group}", 4), partition=partition)
        await bench.start(journal.handler(0, work), concurrency=6, drain_timeout=30.0)
        await until(lambda: len(journal.runs) == 6, lambda: str(journal.runs))
        second = bench.launch(journal.handler(1, work), lease_timeout=300.0, lease_idle=300.0)
        await until(lambda: bool(second.consumer.reasons), lambda: str(second.consumer.reasons))
        [away] = second.consumer.reasons
        await asyncio.sleep(0.5)  # that nothing happens is seen after a while only

        assert len(journal.runs) == 6

        if fenced:
            async with Outsider(bench, away):
                free.set()
                await until(lambda: len(journal.ended) >= 6, lambda: str(journal.ended))
        free.set()
        await second.ready(1)
        taken = time.monotonic()
        await until(lambda: len(journal.ended) >= 24, lambda: f"{len(journal.ended)} of 24 ended")

        assert judge(journal.runs, {f"g{index}-{group}": 4 for index in range(2) for group in range(3)}) == []
        assert {run.attempt for run in journal.runs} == {1}
        drained = [run for run in journal.runs if run.partition == away and run.pid == 0]
        assert len(drained) == 3
        assert max(run.end or taken for run in drained) < taken


async def test_thread_is_told(bootstrap: str) -> None:
    """A thread cannot be cancelled: its message says that the partition was lost, and its later actions count for nothing."""
    seen: list[tuple[int, bool]] = []
    begun = threading.Event()

    def work(message: Message) -> None:
        if message.attempt == 1 and message.fence == 1:
            begun.set()
            deadline = time.monotonic() + LIMIT_S
            while not message.fenced and time.monotonic() < deadline:
                time.sleep(0.01)
            seen.append((message.fence, message.fenced))
            raise ValueError("too late to take effect")
        seen.append((message.fence, message.fenced))

    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 1))
        running = await bench.start(work)
        await until(begun.is_set, lambda: "nothing is begun")
        await take(bench)
        await bench.until_next(running, 1)

        assert seen == [(1, True), (3, False)]
        assert await bench.letters() == []


# -- how much is written ------------------------------------------------------------------------------------------------


def _refreshes(written: list[tuple[int, Progress]]) -> list[int]:
    """Milliseconds from each record to the next one that only refreshes it."""
    found = []
    for (before, earlier), (now, later) in itertools.pairwise(written):
        if replace(later, beat=earlier.beat, reserved=earlier.reserved) == earlier:
            found.append(now - before)
    return found


async def test_one_refresh_a_second(bootstrap: str) -> None:
    """A holder refreshes its lease once a second while something runs; otherwise it writes nothing."""

    async def work(message: Message) -> None:
        await asyncio.sleep(3.5)

    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 1))
        running = await bench.start(Recorder(work))
        await bench.until_next(running, 1)
        running.consumer.partitions[0].writer.hold(
            True
        )  # written at once, which ends what the message brought about
        await running.consumer.partitions[0].writer.persisted()
        ended = len(await _written(bench))
        await asyncio.sleep(2.5)
        written = await _written(bench)

    refreshes = _refreshes(written[:ended])
    assert sum(refresh >= 900 for refresh in refreshes) == 3
    # The one that hold() above asked for, and the first record of all where nothing had happened yet.
    assert sum(refresh < 900 for refresh in refreshes) <= 1
    assert len(written) == ended
    beats = [progress.beat for _, progress in written]
    assert beats == sorted(set(beats))
