"""Opens one lane's table beside another task of the loop, and looks IDs up in it: ``python -m bench.rings_probe CONFIG FOLDER``.

A process of its own for each measurement, so that none finds what an earlier one left in memory.
"""

import asyncio
import contextlib
import gc
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.measure import REPORT
from bench.rings import identity
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.aiokafka_patches import lenient_records
from ringfence_kafka.config.load import load
from ringfence_kafka.process import gc_settings
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.stored_ids import encode_id
from ringfence_kafka.readers.log_reader import LogReader
from tables.change import TableOptions
from tables.restore import ChangelogBounds
from tables.table import LaneTable

LOOKED_UP: Final = 100_000
AT_ONCE: Final = 1_000
TICK_S: Final = 0.005


@contextlib.asynccontextmanager
async def held() -> AsyncIterator[list[float]]:
    """Yield the longest delay of a task that wants to run each few milliseconds."""
    longest = [0.0]

    async def tick() -> None:
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            longest[0] = max(longest[0], time.perf_counter() - due)

    task = asyncio.create_task(tick())
    try:
        yield longest
    finally:
        task.cancel()


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


def _read_bytes() -> int:
    """By read calls, the page cache's included."""
    return int(Path("/proc/self/io").read_text("ascii").split()[1])


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _look_up(table: LaneTable, ids: Sequence[bytes], known: bool) -> tuple[float, int]:
    """CPU microseconds for each, and bytes read for all."""
    began, read = time.thread_time(), _read_bytes()
    for begin in range(0, len(ids), AT_ONCE):
        found = table.ring.index.lookup(ids[begin : begin + AT_ONCE])
        if any((item is None) is known for item in found):
            raise AssertionError("an ID that is known is not found, or one that is not is")
    return (time.thread_time() - began) / len(ids) * 1e6, _read_bytes() - read


async def probe(config: Path, folder: Path) -> dict[str, Any]:
    """Open the table of partition 0 of the first address, with its RocksDB in this folder."""
    settings = load(config)
    address = settings.addresses[0]
    changelog = wire_names.changelog_topic(settings.app.id, address.name)
    options = TableOptions(
        address.id_cache_size, settings.app.resident_ids_max, app=settings.app.id, address=address.name
    )
    table = LaneTable(folder, options)
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        bounds = ChangelogBounds(
            await cluster.offsets.log_start(changelog, 0),
            await cluster.offsets.high_watermark(changelog, 0),
            (await cluster.topics.describe([changelog])).topics[changelog].number("delete.retention.ms", 0)
            / 1000,
        )
        began_rss = _status("VmRSS:")
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        async with held() as longest:
            _, restored = await table.open(LogReader(settings.kafka), changelog, 0, bounds)
        seconds, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        rss = _status("VmRSS:")
    count = address.id_cache_size
    step = max(1, count // LOOKED_UP)
    known = [encode_id(identity(index)) for index in range(0, count, step)]
    misses_us, misses_read = _look_up(
        table, [encode_id(identity(index + count)) for index in range(0, count, step)], known=False
    )
    hits_us, _ = _look_up(table, known, known=True)
    ids = len(table.ring)
    table.close()
    return {
        "reused": restored.reused,
        "ids": ids,
        "seconds": seconds,
        "cpu_s": cpu_s,
        "held_s": longest[0],
        "rss_bytes": rss,
        "peak_rss_bytes": _status("VmHWM:"),
        "began_rss_bytes": began_rss,
        "disk_bytes": _size(folder),
        "misses_us": misses_us,
        "hits_us": hits_us,
        "misses_read_bytes": misses_read,
    }


def main() -> None:
    """Read the command line and measure."""
    lenient_records.install()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc_settings.THRESHOLDS)
    print(REPORT.decode() + json.dumps(asyncio.run(probe(Path(sys.argv[1]), Path(sys.argv[2])))))


if __name__ == "__main__":
    main()
