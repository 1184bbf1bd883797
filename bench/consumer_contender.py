"""One contender, in a process of its own: ``python -m bench.consumer_contender KIND``, then ``BOOTSTRAP NAME`` or ``SHAPE``, ``MESSAGES SECONDS``.

Prints a JSON line: wall and CPU seconds from the first handler to the end of the last one.
"""

import asyncio
import json
import resource
import sys
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer

from bench.shapes import CONCURRENCY, STUCK, groups
from ringfence_client import ConsumerOptions, GroupConsumer
from ringfence_kafka.config.load import validate
from ringfence_kafka.process import gc_settings


class Handler:
    """Awaits, and says when all is done."""

    def __init__(self, messages: int, seconds: float) -> None:
        self.messages = messages
        self._left = messages
        self._seconds = seconds
        self.done = asyncio.Event()
        self.began: float | None = None
        self.result: dict[str, float] = {}

    async def __call__(self, message: Any) -> None:
        """Handle a message; one of the stuck group never ends."""
        if self.began is None:
            self.began, self._cpu = time.perf_counter(), _cpu()
        if message is not None and message.group == STUCK:
            await asyncio.Event().wait()
        await asyncio.sleep(self._seconds)
        self._left -= 1
        if not self._left:
            self.result = {"wall": time.perf_counter() - self.began, "cpu": _cpu() - self._cpu}
            self.done.set()


class Nothing(Handler):
    """Counts."""

    async def __call__(self, message: Any) -> None:
        """Handle a message."""
        self._count(1)

    def _count(self, messages: int) -> None:
        if self.began is None:
            self.began, self._cpu = time.perf_counter(), _cpu()
        self._left -= messages
        if self._left <= 0 and not self.done.is_set():
            self.result = {"wall": time.perf_counter() - self.began, "cpu": _cpu() - self._cpu}
            self.done.set()


class Totals(Nothing):
    """Keeps a running total for each group, and sends it."""

    async def __call__(self, message: Any) -> None:
        """Handle a message."""
        total = int(message.state or 0) + 1
        message.state = str(total)
        await message.send(TOTALS, message.value, key=message.group)
        self._count(1)


class BatchTotals(Nothing):
    """The same with batches."""

    async def __call__(self, messages: Any) -> None:
        """Handle a batch."""
        total = int(messages[0].state or 0)
        for message in messages:
            total += 1
            await message.send(TOTALS, message.value, key=message.group)
        messages[-1].state = str(total)
        self._count(len(messages))


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


TOTALS: Final = "bench-totals"
"""Topic that handlers send to."""
BATCH: Final = 100


async def _grouped(bootstrap: str, name: str, handler: Handler) -> None:
    settings = validate(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "app": {"id": "bench"},
            "addresses": [{"name": name}],
        }
    )
    batch = BATCH if isinstance(handler, BatchTotals) else 0
    options = ConsumerOptions(concurrency=CONCURRENCY, drain_timeout=1.0, batch=batch)
    group = f"{name}-{type(handler).__name__.lower()}-{uuid.uuid4().hex[:8]}"
    consumer = GroupConsumer(settings, settings.addresses[0], group, handler, options)
    running = asyncio.create_task(consumer.run())
    await handler.done.wait()
    consumer.stop()
    await running


async def _plain(bootstrap: str, name: str, handler: Handler) -> None:
    """One message at a time, in the order of its partition; commits every second."""
    consumer = AIOKafkaConsumer(
        f"{name}.accepted",
        bootstrap_servers=bootstrap,
        group_id=f"{name}-plain",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        auto_commit_interval_ms=1_000,
    )
    await consumer.start()
    try:
        while not handler.done.is_set():
            for records in (await consumer.getmany(timeout_ms=200, max_records=500)).values():
                for _ in records:
                    await handler(None)
    finally:
        await consumer.stop()


async def _loop(shape: str, handler: Handler) -> None:
    """No Kafka: as many tasks as handlers, each with one group after the other, the fullest first."""
    counts = iter(sorted(Counter(groups(shape, handler.messages)).values(), reverse=True))

    async def work() -> None:
        for count in counts:
            for _ in range(count):
                await handler(None)

    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))


async def _main(kind: str, *arguments: str) -> None:
    *what, messages, seconds = arguments
    kinds = {"nothing": Nothing, "totals": Totals, "batches": BatchTotals}
    handler = kinds.get(kind, Handler)(int(messages), float(seconds))
    contenders: dict[str, Callable[..., Awaitable[None]]] = {
        "loop": _loop,
        "grouped": _grouped,
        "plain": _plain,
        **dict.fromkeys(kinds, _grouped),
    }
    await contenders[kind](*what, handler)
    print(json.dumps(handler.result))


if __name__ == "__main__":
    gc_settings.collect_rarely()  # as the consumer's command does
    asyncio.run(_main(*sys.argv[1:]))
