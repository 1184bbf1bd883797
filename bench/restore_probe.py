"""Opens one lane's table as a worker does, and says what it took: ``python -m bench.restore_probe CONFIG FOLDER``.

A process of its own for each measurement, so that none finds what an earlier one left in memory.
"""

import asyncio
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.measure import REPORT
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.load import load
from ringfence_kafka.process import gc_settings
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers.log_reader import LogReader
from tables.change import TableOptions
from tables.restore import ChangelogBounds
from tables.table import LaneTable


async def probe(config: Path, folder: Path) -> dict[str, Any]:
    """Open the table of partition 0 of the first address, with its RocksDB in this folder."""
    settings = load(config)
    address = settings.addresses[0]
    changelog = wire_names.changelog_topic(settings.app.id, address.name)
    table = LaneTable(
        folder,
        TableOptions(
            address.id_cache_size, settings.app.resident_ids_max, app=settings.app.id, address=address.name
        ),
    )
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        bounds = ChangelogBounds(
            await cluster.offsets.log_start(changelog, 0),
            await cluster.offsets.high_watermark(changelog, 0),
            (await cluster.topics.describe([changelog])).topics[changelog].number("delete.retention.ms", 0)
            / 1000,
        )
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        _, restored = await table.open(LogReader(settings.kafka), changelog, 0, bounds)
        seconds, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        _, again = await table.open(LogReader(settings.kafka), changelog, 0, bounds)
    table.close()
    return {
        "reused": restored.reused,
        "ids": len(table.ring),
        "changelog_records": restored.records,
        "seconds": seconds,
        "cpu_s": cpu_s,
        "again_s": again.seconds,
    }


def main() -> None:
    """Read the command line and measure."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc_settings.THRESHOLDS)
    print(REPORT.decode() + json.dumps(asyncio.run(probe(Path(sys.argv[1]), Path(sys.argv[2])))))


if __name__ == "__main__":
    main()
