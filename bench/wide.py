"""How long one consumer takes to open an address of many partitions, and what it needs for that."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic

from bench.errors import BenchError
from bench.traffic import LOG_LEVEL
from ringfence_client import ConsumerOptions, GroupConsumer
from ringfence_kafka import wire
from ringfence_kafka.config.load import validate

READY_LIMIT_S: Final = 600.0
IDLE_S: Final = 10.0
CREATE_LIMIT_S: Final = 120.0


def run(bootstrap: str, partitions: int, say: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Make the topic, and open it twice; each result is said as it is there.

    Returns:
        By consumer: seconds from the start until all partitions are held, CPU seconds until then, sockets, CPU percent of a
        stretch without messages after it, seconds to let go.
    """
    _make(bootstrap, partitions)
    found = {}
    for holder in ("first", "second"):
        found[holder] = asyncio.run(_measure(bootstrap))
        say(f"{holder}: {json.dumps(found[holder])}")
    return found


def save(found: dict[str, dict[str, float]], path: Path) -> None:
    """As JSON."""
    path.write_text(json.dumps(found, indent=1) + "\n")


def _make(bootstrap: str, partitions: int) -> None:
    """A broker is busy with a thousand new partitions for seconds: that is not what is measured."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL})
    deadline = time.monotonic() + CREATE_LIMIT_S
    # What comes after them appears when they are made.
    for names in ({"wide.accepted": partitions, wire.dead_letter_topic("wide"): partitions}, {"last": 1}):
        for future in admin.create_topics([NewTopic(*each, 1) for each in names.items()]).values():
            future.result(CREATE_LIMIT_S)
        while not names.keys() <= admin.list_topics(timeout=CREATE_LIMIT_S).topics.keys():
            if time.monotonic() > deadline:
                raise BenchError(f"{', '.join(names)} are not there after {CREATE_LIMIT_S:g} s")
            time.sleep(0.1)


async def _measure(bootstrap: str) -> dict[str, float]:
    settings = validate(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "app": {"id": "bench"},
            "addresses": [{"name": "wide"}],
        }
    )
    consumer = GroupConsumer(settings, settings.addresses[0], "wide", _handle, ConsumerOptions())
    began, cpu = time.monotonic(), time.process_time()
    running = asyncio.create_task(consumer.run())
    peak = 0
    while not consumer.ready:
        await asyncio.wait([running], timeout=0.05)
        if running.done() or time.monotonic() - began > READY_LIMIT_S:
            raise BenchError(f"{len(consumer.partitions)} partitions are held: {consumer.reasons}")
        peak = max(peak, _sockets())
    result = {
        "partitions": len(consumer.partitions),
        "ready_s": round(time.monotonic() - began, 2),
        "cpu_s": round(time.process_time() - cpu, 2),
        "sockets": _sockets(),
        "sockets_max": peak,
    }
    cpu = time.process_time()
    await asyncio.sleep(IDLE_S)
    result["idle_cpu_percent"] = round(100 * (time.process_time() - cpu) / IDLE_S, 1)
    began = time.monotonic()
    consumer.stop()
    await running
    return result | {"stop_s": round(time.monotonic() - began, 2)}


async def _handle(_message: Any) -> None:
    """Nothing."""


def _sockets() -> int:
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found += str(each.readlink()).startswith("socket:")
    return found
