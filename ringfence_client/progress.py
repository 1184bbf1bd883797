"""The compacted progress topic: read to its end for the keys that are asked for.

Many holders write to one partition of it, each in transactions of its own that are short: those that are open are waited
for.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiokafka.partitioner import murmur2

from conf import wire
from conf.settings import KafkaSettings
from ringfence_client import record
from ringfence_client.record import Progress
from tables import changelog
from tables.cluster import Cluster
from tables.latest import LatestValues

PARTITIONS: Final = 8
"""For the topic as Ringfence creates it; an existing one keeps its count, which must not change."""
TOPIC_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    # A holder writes up to ten records a second, and an opening reads all that compaction left and the segment that is
    # still open, which it never touches: as small as Kafka lets it be.
    "segment.bytes": str(2**20),
    "segment.ms": str(10 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
    # Each record's commit marker outlives it for so long: with Kafka's default of a day, 270 MB of four busy partitions.
    "delete.retention.ms": str(60 * 1000),
}


class ProgressTopic:
    """Reads progress records; questions that come together are answered by one reading, and what was read is kept."""

    def __init__(self, kafka: KafkaSettings, app_id: str, cluster: Cluster) -> None:
        self.name = wire.progress_topic(app_id)
        self._kafka = kafka
        self._cluster = cluster
        self._partitions = 0
        self._latest: LatestValues

    async def start(self) -> None:
        """Ask how many partitions it has."""
        counts = await self._cluster.partition_counts([self.name])
        self._partitions = counts[self.name]
        self._latest = LatestValues(self._kafka, self._cluster, self.name, self._partitions)

    async def stop(self) -> None:
        """Answer nobody any more, and disconnect."""
        await self._latest.stop()

    def partition(self, key: bytes) -> int:
        """Where the records of a key are, as any client's default partitioner has it."""
        return int(murmur2(key) & 0x7FFFFFFF) % self._partitions

    async def latest(self, key: bytes) -> Progress | None:
        """The last record of this key that was committed before the call; None = there is none.

        To ask again costs little: what was read is kept, and only what came since is read.

        Raises:
            ProgressFormatError: it cannot be read.
            ChangelogStalledError: somebody's transaction does not end.
            KafkaError: the cluster does not answer.
        """
        progress, _ = await self.look(key)
        return progress

    async def look(self, key: bytes) -> tuple[Progress | None, float]:
        """The last record as :meth:`latest` has it, and when the end up to which was read was asked for (monotonic, s).

        A record that is committed later was not written before then.
        """
        value, asked_at = await self._latest.look(self.partition(key), key)
        return None if value is None else record.decode(value), asked_at


async def read(kafka: KafkaSettings, cluster: Cluster, topic: str, partition: int) -> dict[bytes, Any]:
    """The last record of each key in a partition, up to its present end."""
    found: dict[bytes, Any] = {}

    async def consume(records: Sequence[Any]) -> None:
        for each in records:
            if each.value is None:
                found.pop(each.key, None)
            else:
                found[each.key] = each

    start = await cluster.log_start(topic, partition)
    end = await cluster.high_watermark(topic, partition)
    await changelog.read(kafka, topic, partition, start, end, consume)
    return found
