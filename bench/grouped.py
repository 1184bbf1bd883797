"""One consumer of the comparison, in a process of its own: ``python -m bench.grouped KIND BOOTSTRAP NAME MESSAGES SECONDS``.

Prints a JSON line: wall and CPU seconds from the first handler to the end of the last one.
"""

import asyncio
import json
import resource
import sys
import time
from typing import Any

from aiokafka import AIOKafkaConsumer

from conf.load import validate
from ringfence_client import ConsumerOptions, GroupConsumer

CONCURRENCY = 100


class Handler:
    """Awaits, and says when all is done."""

    def __init__(self, messages: int, seconds: float) -> None:
        self._left = messages
        self._seconds = seconds
        self.done = asyncio.Event()
        self.began: float | None = None
        self.result: dict[str, float] = {}

    async def __call__(self, _message: Any) -> None:
        """A message."""
        if self.began is None:
            self.began, self._cpu = time.perf_counter(), _cpu()
        await asyncio.sleep(self._seconds)
        self._left -= 1
        if not self._left:
            self.result = {"wall": time.perf_counter() - self.began, "cpu": _cpu() - self._cpu}
            self.done.set()


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def _grouped(bootstrap: str, name: str, handler: Handler) -> None:
    settings = validate(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "app": {"id": "bench"},
            "addresses": [{"name": name}],
        }
    )
    options = ConsumerOptions(concurrency=CONCURRENCY)
    consumer = GroupConsumer(settings, settings.addresses[0], f"{name}-grouped", handler, options)
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
                for record in records:
                    await handler(record)
    finally:
        await consumer.stop()


async def _main(kind: str, bootstrap: str, name: str, messages: str, seconds: str) -> None:
    handler = Handler(int(messages), float(seconds))
    await {"grouped": _grouped, "plain": _plain}[kind](bootstrap, name, handler)
    print(json.dumps(handler.result))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
