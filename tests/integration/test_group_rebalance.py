"""Rebalances: what is suspended goes on as it was, what failed or was lost meanwhile does not."""

import asyncio
import time

import pytest
from aiokafka import TopicPartition

from ringfence_client import Message, Retry
from ringfence_kafka.process import failpoints
from tests.support.consumers.held_handler import Held
from tests.support.consumers.in_process import Recorder, consuming, interleaved, numbered
from tests.support.consumers.leases import take
from tests.support.lanes import Gate, until


async def test_thread_ends_in_a_rebalance(bootstrap: str) -> None:
    """What a thread of a former lease does in a rebalance counts as what any handler does: it is not done again."""
    held = Held("thread")
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 2))
        running = await bench.start(held.handler, concurrency=2)
        await until(lambda: len(held.recorder.begun) == 1, lambda: str(held.recorder.begun))
        before = running.consumer.partitions[0]
        await take(bench)
        bench.send(*numbered(b"other", 1))
        await until(
            lambda: running.consumer.partitions.get(0, before) is not before,
            lambda: str(running.consumer.reasons),
        )
        window = running.consumer.partitions[0].window
        await until(
            lambda: any(group.acquired for group in window.groups() if group.group == b"group"),
            lambda: str(window.counts),
        )
        # What aiokafka says when the group is rebalanced.
        await running.consumer.held_partitions.revoked([TopicPartition(bench.accepted, 0)])
        held.free.set()
        await until(lambda: 0 in held.recorder.offsets, lambda: str(held.recorder.begun))
        running.consumer.held_partitions.given([TopicPartition(bench.accepted, 0)])
        await bench.until_next(running, 3)

        assert held.recorder.attempts(0) == [1]


async def test_write_fails_in_a_rebalance(bootstrap: str) -> None:
    """Who is asked to give its partitions away holds them until it has: a write that fails then is made again."""
    free = asyncio.Event()
    failed = 0

    async def fail_once(point: str, lane: str) -> None:
        nonlocal failed
        failed += 1
        if failed == 1:
            raise OSError("planted")

    async def work(message: Message) -> None:
        if message.offset == 0:
            await free.wait()

    handler = Recorder(work)
    async with consuming(bootstrap, 2) as bench:
        for partition in range(2):
            bench.send(*numbered(b"group", 3), partition=partition)
        first = await bench.start(handler, drain_timeout=20)
        await until(lambda: len(handler.begun) == 2, lambda: str(handler.begun))
        held = first.consumer.partitions[0]
        second = bench.launch(handler)
        await until(lambda: held.draining, lambda: "nothing is drained")
        remove = failpoints.install("before-commit", bench.lease_name(), fail_once)
        try:
            await until(lambda: failed > 1, lambda: "it is not written again")
            free.set()
            await second.ready(1)
        finally:
            remove()
        await first.ready(1)
        holders = {number: running for running in (first, second) for number in running.consumer.partitions}
        for partition in range(2):
            await bench.until_next(holders[partition], 3, partition)

        assert failed > 1
        assert handler.wrong == []
        assert len(handler.begun) == len(handler.done) == 6


async def test_assigned_while_it_is_dropped(bootstrap: str) -> None:
    """A partition that comes back while what ran of it is still being cancelled waits for that."""
    cleaning = asyncio.Event()

    async def work(message: Message) -> None:
        if not cleaning.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cleaning.set()
                await asyncio.sleep(1.5)
                raise

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 3))
        running = await bench.start(handler)
        await until(lambda: len(handler.begun) == 1, lambda: str(handler.begun))
        await take(bench)
        bench.send(*numbered(b"other", 1))
        await until(cleaning.is_set, lambda: "nothing is cancelled")
        # What aiokafka says when the group is rebalanced.
        partitions = [TopicPartition(bench.accepted, 0)]
        await running.consumer.held_partitions.revoked(partitions)
        running.consumer.held_partitions.given(partitions)
        await bench.until_next(running, 4)

        assert handler.wrong == []
        assert handler.by_group()[b"group"] == [0, 1, 2]


async def test_regained_when_a_handler_ends(bootstrap: str) -> None:
    """A partition that comes back in the tick in which one of its handlers ends goes on at once: it waits for no other."""
    free = asyncio.Event()

    async def wait(message: Message) -> None:
        await free.wait()

    handler = Recorder(wait)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 3))
        running = await bench.start(handler, drain_timeout=300.0)
        await until(lambda: len(handler.begun) == 1, lambda: str(handler.begun))
        held, held_partitions = running.consumer.partitions[0], running.consumer.held_partitions
        partitions = [TopicPartition(bench.accepted, 0)]
        # What aiokafka says when the group is rebalanced, twice.
        await held_partitions.revoked(partitions)
        held_partitions.given([])
        await asyncio.sleep(0)
        await held_partitions.revoked(partitions)
        held_partitions.given(partitions)
        held.ended.set()
        await until(lambda: not held.draining, lambda: "it does not go on")
        free.set()
        await bench.until_next(running, 3)

        assert {message.fence for message in handler.messages} == {1}


@pytest.mark.parametrize("when", ["before", "meanwhile", "at its end"])
async def test_failed_and_regained(bootstrap: str, when: str) -> None:
    """A lease that failed before or in a rebalance does not go on after it: what runs ends and counts, the rest is opened anew."""
    free = asyncio.Event()

    async def wait(message: Message) -> None:
        await free.wait()

    handler = Recorder(wait)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 3))
        running = await bench.start(handler, drain_timeout=300.0)
        await until(lambda: len(handler.begun) == 1, lambda: str(handler.begun))
        held_partitions, partitions = running.consumer.held_partitions, [TopicPartition(bench.accepted, 0)]
        held = running.consumer.partitions[0]
        if when == "before":
            held.fail()
        # What aiokafka says when the group is rebalanced.
        await held_partitions.revoked(partitions)
        if when == "meanwhile":
            held.fail()
        await held.writer.persisted()
        gate = Gate()
        remove = failpoints.install("before-send", bench.lease_name(), gate)
        held_partitions.given(partitions)
        if when == "at its end":
            await gate.wait()  # in the write before it goes on
            held.fail()
        gate.open()
        remove()
        free.set()
        await running.ready(1)
        await bench.until_next(running, 3)

        assert handler.wrong == []
        assert [message.fence for message in handler.messages] == [1, 2, 2]


async def test_delays_outlast_a_rebalance(bootstrap: str) -> None:
    """What waits to be tried again waits on where its partition comes back: neither does it come early, nor while nothing may."""
    delays = {0: 1.0, 1: 1.0, 2: 0.05}
    """Of a message that fails before, of one that fails meanwhile, of one whose delay ends meanwhile."""
    failed: dict[int, float] = {}
    again: dict[int, float] = {}
    free = asyncio.Event()

    async def work(message: Message) -> None:
        if message.attempt > 1:
            again[message.offset] = time.monotonic()
            return
        if message.offset:
            await free.wait()
        failed[message.offset] = time.monotonic()
        raise Retry("later", delays[message.offset])

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        bench.send(*interleaved(3, 1))
        running = await bench.start(handler)
        held, held_partitions = running.consumer.partitions[0], running.consumer.held_partitions
        await until(lambda: len(handler.begun) == 3 and 0 in failed, lambda: str(handler.begun))
        # What aiokafka says when the group is rebalanced.
        await held_partitions.revoked([TopicPartition(bench.accepted, 0)])
        free.set()
        await until(lambda: len(failed) == 3, lambda: str(failed))
        await asyncio.sleep(2 * delays[2])

        assert again == {}
        assert held.window.running == set()

        held_partitions.given([TopicPartition(bench.accepted, 0)])
        await bench.until_next(running, 3)

        assert all(again[offset] >= failed[offset] + delay for offset, delay in delays.items())
        assert {message.fence for message in handler.messages} == {1}
