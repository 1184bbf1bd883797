"""Adapts the size of transfers to a link, so that requests are answered in time on slow links too."""

import time
from typing import Any, Final

from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.fetch import FetchRequest

from ringfence_kafka.aiokafka_patches import fetch_buffer

LEAST_BYTES: Final = 64 * 2**10
SLOW: Final = 0.5
"""Share of the request time-out: a slower response halves the size."""
QUICK: Final = SLOW / 2
"""Share of the request time-out: a faster response may double the size."""
PARTITIONS: Final = 8
"""Assumed number of partitions in one response while the size is reduced."""
FAILED: Final = 4
"""Divisor of the size after a request that timed out, so that the next one succeeds."""


class FetchSize:
    """A size in bytes that adapts to the duration of transfers. Pure.

    A response that takes longer than the request time-out is lost, and each further attempt of the same size would be lost too.
    """

    def __init__(self, most: int, limit_s: float) -> None:
        """Start with ``most`` bytes, as for a fast link. Requests must be answered within ``limit_s`` seconds."""
        self.bytes = most
        self.most: Final = most
        self._limit_s = limit_s

    def took(self, count: int, seconds: float) -> None:
        """Adapt the size to a response of ``count`` bytes. A small fast response says nothing about a large one."""
        if seconds > SLOW * self._limit_s:
            self.bytes = max(LEAST_BYTES, self.bytes // 2)
        elif seconds < QUICK * self._limit_s and 2 * count >= self.bytes:
            self.bytes = min(self.most, self.bytes * 2)

    def failed(self) -> None:
        """Reduce the size after a transfer that timed out."""
        self.bytes = max(LEAST_BYTES, self.bytes // FAILED)


class AdaptiveFetch:
    """Adapts the fetch size of an aiokafka consumer to the duration of its fetches. A broker always returns at least one record batch."""

    def __init__(self, consumer: Any) -> None:
        """Patch a consumer that is not connected yet. It starts with its own sizes."""
        self._consumer = consumer
        client = consumer._client
        self._partition_most: int = consumer._max_partition_fetch_bytes
        self.portion = FetchSize(consumer._fetch_max_bytes, client._request_timeout_ms / 1000)
        """Size of one response, with all partitions of a broker, in bytes."""
        self._send = client.send
        client.send = self._measured

    def limit(self, partition_bytes: int) -> None:
        """Limit the size of one partition in a response, in bytes, from the next request on."""
        self._partition_most = partition_bytes
        self._apply()

    def _apply(self) -> None:
        of_all = self.portion.bytes
        narrow = of_all if of_all == self.portion.most else max(LEAST_BYTES, of_all // PARTITIONS)
        fetch_buffer.limit_fetches(self._consumer._fetcher, min(self._partition_most, narrow), of_all)

    async def _measured(self, node_id: Any, request: Any, **options: Any) -> Any:
        if not isinstance(request, FetchRequest):
            return await self._send(node_id, request, **options)
        began = time.monotonic()
        try:
            response = await self._send(node_id, request, **options)
        except RequestTimedOutError:
            self.portion.failed()
            self._apply()
            raise
        count = sum(
            len(partition[-1] or b"") for _, partitions in response.topics for partition in partitions
        )
        self.portion.took(count, time.monotonic() - began)
        self._apply()
        return response
