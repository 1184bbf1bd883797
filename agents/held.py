"""What a lane holds over a failure is read again from the log before it is processed.

A broker that comes back without the tail of its log gives the lost offsets to other records. What was fetched before
would be accepted from places where something else now stands, and that would be stepped over. One fetch may even hold
records of before and after; so nothing is compared, all is read.
"""

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from agents.batch import FetchedBatch
from conf.settings import KafkaSettings
from tables import changelog
from tables.cluster import Cluster

READ_LIMIT_S: Final = 15.0


async def read_again(
    kafka: KafkaSettings, cluster: Cluster, held: Sequence[FetchedBatch]
) -> list[FetchedBatch]:
    """The held batches as they stand in the log now, one for each topic; less where the log has become shorter.

    What retention has deleted meanwhile cannot be read, and nothing else can stand there: it stays as it is.

    Raises:
        TimeoutError: the log cannot be read.
    """
    again: list[FetchedBatch] = []
    async with asyncio.timeout(READ_LIMIT_S):
        for topic in dict.fromkeys(each.topic for each in held):
            batches = [each for each in held if each.topic == topic]
            first, last = batches[0], batches[-1]
            if await cluster.log_start(topic, first.partition) > first.begin:
                again += batches
                continue
            end = min(last.end, await cluster.high_watermark(topic, first.partition))
            records: list[Any] = []

            async def consume(found: Sequence[Any], records: list[Any] = records, end: int = end) -> None:
                records.extend(each for each in found if each.offset < end)

            await changelog.read(kafka, topic, first.partition, first.begin, end, consume)
            if records:
                malformed = {offset: why for each in batches for offset, why in each.malformed.items()}
                again.append(dataclasses.replace(first, end=end, records=records, malformed=malformed))
    return again
