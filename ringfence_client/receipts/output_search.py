"""Finds a message's output records, if the changelog does not tell the verdict."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers.log_reader import LogReader

PARALLEL: Final = 8


class OutputSearch:
    """Searches output topics by ``_RF_SOURCE``."""

    def __init__(self, cluster: Cluster, reader: LogReader) -> None:
        self._cluster = cluster
        self._reader = reader
        self._limit = asyncio.Semaphore(PARALLEL)

    async def find(
        self, topic: str, partitions: Iterable[int], source: str, since_ms: int
    ) -> dict[str, bytes | None] | None:
        """Return the headers of the record made from a message; None = not found. ``since_ms``: the message's record timestamp."""
        found = await asyncio.gather(
            *(self._find(topic, partition, source.encode(), since_ms) for partition in partitions)
        )
        return next((headers for headers in found if headers is not None), None)

    async def _find(
        self, topic: str, partition: int, source: bytes, since_ms: int
    ) -> dict[str, bytes | None] | None:
        # Outputs keep the input's timestamp. The search starts at the first record that is not older.
        begin = await self._cluster.offsets.since(topic, partition, since_ms)
        if begin is None:
            return None
        found: list[dict[str, bytes | None]] = []

        async def take(records: Sequence[Any]) -> None:
            for record in records:
                headers = dict(record.headers)
                if headers.get(wire_names.HEADER_SOURCE) == source:
                    found.append(headers)

        # The search ends at the high watermark, because the marker of a committed transaction may be written only now.
        end = await self._cluster.offsets.high_watermark(topic, partition)
        async with self._limit:
            await self._reader.read_range(topic, partition, begin, end, take)
        return found[0] if found else None
