"""Doubles of :class:`ringfence_kafka.admin.cluster.Cluster` and :mod:`ringfence_kafka.readers.log_reader`."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError

from ringfence_kafka.admin.topics import Described
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.groups.committed_offsets import Committed
from ringfence_kafka.readers.log_reader import LogReader, Take, require_moving
from tests.simulator.kafka.cluster import SimulatedCluster
from tests.simulator.kafka.logs import Fetched
from tests.simulator.kafka.network import Network
from tests.support.cluster_double import ClusterDouble

READ_AT_ONCE: Final = 3
"""Offsets in one fetch of a restore: few, so that much can happen between two fetches."""
POLL_S: Final = 0.05


class SimulatedQuestions(ClusterDouble):
    """Queries that the lanes of one process send."""

    def __init__(
        self, kafka: KafkaSettings, group_id: str, cluster: SimulatedCluster, network: Network
    ) -> None:
        self.kafka = kafka
        self.group_id = group_id
        self._cluster = cluster
        self._network = network

    async def describe(self, topics: Iterable[str]) -> Described:
        return Described(await self._network.call(self._cluster.describe, sorted(set(topics))), frozenset())

    async def ids(self, topics: list[str]) -> dict[str, str]:
        return await self._network.call(self._cluster.topic_ids, topics)

    async def log_start(self, topic: str, partition: int) -> int:
        return (await self._network.call(self._cluster.ends, topic, partition))[0]

    async def stable_end(self, topic: str, partition: int) -> int:
        return (await self._network.call(self._cluster.ends, topic, partition))[1]

    async def high_watermark(self, topic: str, partition: int) -> int:
        return (await self._network.call(self._cluster.ends, topic, partition))[2]

    async def known_ends(
        self, partitions: Collection[tuple[str, int]], _limit_s: float
    ) -> dict[tuple[str, int], int]:
        return await self._network.call(self._ends, partitions, 2)

    async def known_starts(
        self, partitions: Collection[tuple[str, int]], _limit_s: float
    ) -> dict[tuple[str, int], int]:
        return await self._network.call(self._ends, partitions, 0)

    async def known_commits(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], int | None]:
        return await self._network.call(
            lambda: {partition: self._cluster.committed(*partition) for partition in sorted(partitions)}
        )

    def _ends(self, partitions: Collection[tuple[str, int]], which: int) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for partition in sorted(partitions):
            with contextlib.suppress(KafkaError):
                found[partition] = self._cluster.ends(*partition)[which]
        return found

    async def committed_offset(self, topic: str, partition: int) -> int | None:
        return await self._network.call(self._cluster.committed, topic, partition)

    async def committed(self, topic: str, partition: int) -> Committed | None:
        offset = await self.committed_offset(topic, partition)
        return None if offset is None else Committed(offset, "")


def _process() -> Any:
    loop: Any = asyncio.get_running_loop()
    return loop.process


async def read_range(
    _reader: LogReader,
    topic: str,
    partition: int,
    start: int,
    high_watermark: int,
    consume: Callable[[Sequence[Any]], Awaitable[None]],
    take: Take | None = None,
) -> int:
    """Double of :meth:`LogReader.read_range`, which repeats lost requests; ``take`` is not called, as records are objects here."""
    process = _process()
    tp = TopicPartition(topic, partition)
    position, moved_at = start, process.monotonic()
    while position < high_watermark:
        fetched = await _fetch(process, topic, partition, position)
        if fetched.records:
            await consume(fetched.records)
        if fetched.end > position:
            position, moved_at = fetched.end, process.monotonic()
        else:
            require_moving(tp, moved_at, position, high_watermark)
            await asyncio.sleep(POLL_S)
    return position


async def _fetch(process: Any, topic: str, partition: int, position: int) -> Fetched:
    while True:
        try:
            found: Fetched = await process.network.call(
                process.cluster.fetch, topic, partition, position, position + READ_AT_ONCE
            )
            return found
        except KafkaConnectionError:
            await asyncio.sleep(POLL_S)


async def newest_values(
    _reader: LogReader, ends: Mapping[tuple[str, int], tuple[int, int]], key: bytes
) -> dict[tuple[str, int], bytes]:
    process = _process()
    found = {}
    for (topic, partition), (start, end) in ends.items():
        fetched = await process.network.call(process.cluster.fetch, topic, partition, start, end)
        values = [record.value for record in fetched.records if record.key == key and record.value]
        if values:
            found[topic, partition] = values[-1]
    return found
