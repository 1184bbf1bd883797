"""Periodic looks at open records, for metrics. The progress topic says which records are settled."""

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from typing import Final

from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from ringfence_client.progress.open_records import Found, OpenRecordCounts, OpenRecords
from ringfence_client.progress.progress_record import Progress, ProgressFormatError, encode_key
from ringfence_client.progress.progress_topic import ProgressTopic
from ringfence_kafka import clock
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.protocol import wire_names

EVERY_S: Final = 30.0
"""Interval of looks at the same topics, in seconds. With open records, a look reads the progress topic."""
LOOK_LIMIT_S: Final = 20.0


class OpenRecordWatch:
    """Open records of several topics, as of the last look."""

    def __init__(self, app_id: str, cluster: Cluster) -> None:
        """Create a watch that has not looked yet."""
        self._app_id = app_id
        self._cluster = cluster
        self._counts = OpenRecordCounts(cluster.kafka)
        self._found: Mapping[tuple[str, str], OpenRecords] = {}
        self._known: frozenset[str] = frozenset()
        self._asked: tuple[frozenset[str], float] = frozenset(), float("-inf")
        """Topics of the last look, and its time."""

    def open_records(self, topic: str, consumer_group: str = "") -> OpenRecords | None:
        """Return the open records of a topic and a consumer group; None = none, or unknown."""
        return self._found.get((topic, consumer_group))

    def knows(self, topic: str) -> bool:
        """Return whether the last look was able to read a topic."""
        return topic in self._known

    async def refresh(self, topics: Collection[str]) -> None:
        """Count the records again if the topics differ or the last count is old. After a failed count, nothing is known until the next one."""
        wanted, now = frozenset(topics), clock.now()
        if self._asked[0] == wanted and now - self._asked[1] < EVERY_S:
            return
        self._asked = wanted, now
        found: Mapping[tuple[str, str], OpenRecords] = {}
        known: frozenset[str] = frozenset()
        with contextlib.suppress(KafkaError, OSError, TimeoutError, RingfenceError, ProgressFormatError):
            async with asyncio.timeout(LOOK_LIMIT_S):
                found, faults = (
                    await read_open_records(self._cluster, self._app_id, self._counts, topics)
                    if topics
                    else ({}, {})
                )
                known = wanted - faults.keys()
        self._found, self._known = found, known


async def read_open_records(
    cluster: Cluster, app_id: str, counts: OpenRecordCounts, topics: Collection[str]
) -> Found:
    """Count the open records once. Reads the settled records from the cluster's progress topic.

    Raises:
        KafkaError: The cluster does not answer.
    """
    progress: ProgressTopic | None = None
    group = wire_names.repair_group(app_id)

    async def settled(topic: str, partition: int) -> Progress | None:
        nonlocal progress
        if progress is None:
            started = ProgressTopic(cluster.kafka, app_id, cluster)
            try:
                await started.start()
            except UnknownTopicOrPartitionError:
                return None  # nothing was ever settled
            progress = started
        return await progress.latest(encode_key(group, topic, partition))

    try:
        return await counts.refresh(cluster, topics, settled)
    finally:
        if progress is not None:
            await progress.stop()
