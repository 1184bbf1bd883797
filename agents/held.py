"""Batches that a lane holds over a failure: processed again only if the log still has them.

A broker that comes back without the tail of its log gives the lost offsets to other records. What was fetched before
would be accepted from places where something else now stands, and that would be stepped over.
"""

from collections.abc import Sequence
from typing import Any

from agents.batch import FetchedBatch, Record
from conf.settings import KafkaSettings
from tables import changelog
from tables.cluster import Cluster


async def still_there(kafka: KafkaSettings, cluster: Cluster, held: Sequence[FetchedBatch]) -> bool:
    """Whether the last record of each topic's last batch stands where it was fetched; then all before it do.

    What retention has deleted meanwhile cannot be compared, and nothing new can stand there.

    Raises:
        Exception: the cluster does not answer.
    """
    last = {each.topic: (each.partition, each.records[-1]) for each in held}
    for topic, (partition, record) in last.items():
        if await cluster.log_start(topic, partition) > record.offset:
            continue
        if await cluster.high_watermark(topic, partition) <= record.offset:
            return False
        found: list[Any] = []

        async def consume(records: Sequence[Any], found: list[Any] = found) -> None:
            found.extend(records)

        await changelog.read(kafka, topic, partition, record.offset, record.offset + 1, consume)
        if not any(_same(each, record) for each in found):
            return False
    return True


def _same(one: Any, other: Record) -> bool:
    return (one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) == (
        other.offset, other.timestamp, other.key, other.value, tuple(other.headers),
    )  # fmt: skip
