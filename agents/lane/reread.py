"""Reads a batch that a lane holds over a failure again from the log.

A broker that lost the tail of its log gives the lost offsets to other records; one fetch may even hold records of before and after.
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
    """Return the held batch as it stands in the log now; None = leave it to the consumer, which has been rewound.

    Records that retention has deleted meanwhile cannot be read, and nothing else can stand at their offsets: they stay as they were
    fetched. Only the consumer finds out the problem of a malformed record.

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
