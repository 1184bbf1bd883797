"""Looks up, in the log, the groups of messages that are not fetched yet."""

from collections.abc import Sequence
from typing import Any, Final

from ringfence_client.partition.partition import HeldPartition
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.protocol import offset_ranges
from ringfence_kafka.readers.log_reader import LogReader

APART_MAX: Final = 2_000
"""Largest distance, in offsets, of messages that are read together."""


async def find_groups(
    kafka: KafkaSettings, topic: str, partition: int, offsets: Sequence[int]
) -> dict[int, bytes | None]:
    """Return the groups of messages that the log still has, given in ascending order; None = no group.

    Raises:
        KafkaError: They cannot be read.
        LogStalledError: As for :meth:`ringfence_kafka.readers.log_reader.LogReader.read_range`.
    """
    groups: dict[int, bytes | None] = {}
    those = frozenset(offsets)

    async def consume(records: Sequence[Any]) -> None:
        groups.update((record.offset, record.key) for record in records if record.offset in those)

    for first, last in offset_ranges.near(offsets, APART_MAX):
        await LogReader(kafka).read_range(topic, partition, first, last + 1, consume)
    return groups


async def named(cluster: Cluster, held: HeldPartition, below: int) -> dict[int, bytes | None]:
    """Find the groups of unfetched messages that a partition's progress names. Raises as :func:`find_groups`."""
    if not held.window.unfetched(below):
        return {}
    start = await cluster.offsets.log_start(held.lease.topic, held.partition)
    offsets = [number for number in held.window.unfetched(below) if number >= start]
    return await find_groups(cluster.kafka, held.lease.topic, held.partition, offsets)
