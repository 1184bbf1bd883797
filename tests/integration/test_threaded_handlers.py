"""Handlers that run in threads: the allowed number at once, in order, and none beside itself when a thread cannot be ended."""

import threading
import time

from aiokafka import TopicPartition

from ringfence_client import Message
from tests.support.consumers.held_handler import Held
from tests.support.consumers.in_process import Recorder, consuming, interleaved, numbered
from tests.support.consumers.leases import take
from tests.support.lanes import until


async def test_many_at_once_in_order(bootstrap: str) -> None:
    """A plain function runs in threads: the allowed number at once, never two of a group, in order."""
    handler = Recorder()
    lock = threading.Lock()
    barrier = threading.Barrier(4)
    met: list[int] = []

    def work(message: Message) -> None:
        with lock:
            context = handler.observed(message)
            context.__enter__()
        try:
            if message.offset < 4:
                met.append(barrier.wait(20))
            time.sleep(0.001)
        finally:
            with lock:
                context.__exit__(None, None, None)

    async with consuming(bootstrap) as bench:
        bench.send(*interleaved(10, 20))
        await bench.handle(work, 200, concurrency=4)

        assert handler.wrong == []
        assert sorted(met) == [0, 1, 2, 3]
        assert handler.most == 4
        assert sorted(handler.offsets) == list(range(200))


async def test_thread_ends_in_a_rebalance(bootstrap: str) -> None:
    """A thread of a former lease that ends in a rebalance finishes its message: it is not handled again."""
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
            lambda: any(group.acquired for group in window.ledger.groups() if group.group == b"group"),
            lambda: str(window.counts),
        )
        # Lines of aiokafka when the group is rebalanced.
        await running.consumer.held_partitions.revoked([TopicPartition(bench.accepted, 0)])
        held.free.set()
        await until(lambda: 0 in held.recorder.offsets, lambda: str(held.recorder.begun))
        running.consumer.held_partitions.given([TopicPartition(bench.accepted, 0)])
        await bench.until_next(running, 3)

        assert held.recorder.attempts(0) == [1]
