"""The compacted progress topic: read to its end for the keys that are asked for.

Many holders write to one partition of it, each in transactions of its own that are short. Who reads has fenced the
holder whose record it wants, so that nothing of that one is open any more; others' transactions are waited for.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from aiokafka.partitioner import murmur2

from conf import wire
from conf.settings import KafkaSettings
from ringfence_client import record
from ringfence_client.record import Progress
from tables import changelog
from tables.cluster import Cluster

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
    """Reads progress records; questions that come together are answered by one reading."""

    def __init__(self, kafka: KafkaSettings, app_id: str, cluster: Cluster) -> None:
        self.name = wire.progress_topic(app_id)
        self._kafka = kafka
        self._cluster = cluster
        self._partitions = 0
        self._waiting: dict[int, dict[bytes, list[asyncio.Future[Progress | None]]]] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    async def start(self) -> None:
        """Ask how many partitions it has."""
        counts = await self._cluster.partition_counts([self.name])
        self._partitions = counts[self.name]

    def partition(self, key: bytes) -> int:
        """Where the records of a key are, as any client's default partitioner has it."""
        return int(murmur2(key) & 0x7FFFFFFF) % self._partitions

    async def latest(self, key: bytes) -> Progress | None:
        """The last record of this key that was committed before the call; None = there is none.

        Raises:
            ProgressFormatError: it cannot be read.
        """
        number = self.partition(key)
        future: asyncio.Future[Progress | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(number, {}).setdefault(key, []).append(future)
        async with self._locks.setdefault(number, asyncio.Lock()):
            if not future.done():
                await self._serve(number, self._waiting.pop(number))
        return future.result()

    async def _serve(self, number: int, wanted: dict[bytes, list[asyncio.Future[Progress | None]]]) -> None:
        try:
            found = await read(self._kafka, self._cluster, self.name, number, wanted)
        except Exception as error:
            for future in _undone(wanted.values()):
                future.set_exception(error)
                future.exception()  # whoever waits sees it; nobody needs to
            raise
        except BaseException:
            # Only this reader was cancelled: the next of those that wait reads for all.
            for key, futures in wanted.items():
                self._waiting.setdefault(number, {}).setdefault(key, []).extend(futures)
            raise
        for key, futures in wanted.items():
            for future in _undone([futures]):
                try:
                    future.set_result(record.decode(found[key].value) if key in found else None)
                except record.ProgressFormatError as error:
                    future.set_exception(error)


def _undone(futures: Iterable[list["asyncio.Future[Any]"]]) -> list["asyncio.Future[Any]"]:
    return [future for each in futures for future in each if not future.done()]


async def read(
    kafka: KafkaSettings, cluster: Cluster, topic: str, partition: int, wanted: Iterable[bytes] | None = None
) -> dict[bytes, Any]:
    """The last record of each key in a partition, up to its present end; only of ``wanted`` keys, where given."""
    keys = None if wanted is None else frozenset(wanted)
    found: dict[bytes, Any] = {}

    async def consume(records: Sequence[Any]) -> None:
        for each in records:
            if keys is None or each.key in keys:
                if each.value is None:
                    found.pop(each.key, None)
                else:
                    found[each.key] = each

    start = await cluster.log_start(topic, partition)
    end = await cluster.high_watermark(topic, partition)
    await changelog.read(kafka, topic, partition, start, end, consume)
    return found
