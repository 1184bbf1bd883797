"""Rebalances: what is suspended goes on as it was, what failed or was lost meanwhile does not."""

import asyncio
import time

import pytest
from aiokafka import TopicPartition

from ringfence_client import Message, Retry
from ringfence_kafka.process import failpoints
from tests.support.consumers.in_process import Recorder, consuming, interleaved, numbered
from tests.support.lanes import Gate, until


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
