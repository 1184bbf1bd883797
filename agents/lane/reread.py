"""Reads a batch that a lane kept after a failure again from the log.

A broker that lost the end of its log reuses the lost offsets for other records. One fetch may contain both old and new records.
"""

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from agents.batch.batch import FetchedBatch
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.readers.log_reader import LogReader

READ_LIMIT_S: Final = 15.0


async def read_again(kafka: KafkaSettings, cluster: Cluster, held: FetchedBatch) -> FetchedBatch | None:
    """Read a kept batch again from the log.

    Records that retention deleted in the meantime cannot be read, and no other record can have their offsets: they stay as they were fetched.

    Returns:
        The batch; None = the rewound consumer must fetch it, because only the consumer finds the problem of a malformed record.

    Raises:
        TimeoutError: the log cannot be read.
    """
    if held.malformed:
        return None
    async with asyncio.timeout(READ_LIMIT_S):
        start = max(held.begin, await cluster.offsets.log_start(held.topic, held.partition))
        end = min(held.end, await cluster.offsets.high_watermark(held.topic, held.partition))
        records: list[Any] = [record for record in held.records if record.offset < start]

        async def consume(found: Sequence[Any]) -> None:
            records.extend(item for item in found if item.offset < end)

        await LogReader(kafka).read_range(held.topic, held.partition, start, end, consume)
    return dataclasses.replace(held, end=end, records=records) if records else None
