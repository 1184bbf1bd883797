"""How much goes over a link at once: so much that a request is answered in time, however narrow the link is."""

import time
from typing import Any, Final

from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.fetch import FetchRequest

from ringfence_kafka.aiokafka_patches import fetch_buffer

LEAST_BYTES: Final = 64 * 2**10
SLOW: Final = 0.5
"""Share of the request timeout: after an answer that took longer, the fetch size is halved."""
QUICK: Final = SLOW / 2
"""Share of the request timeout: after an answer that took less, the fetch size may be doubled."""
PARTITIONS: Final = 8
"""Assumed number of partitions in one answer while the fetch size is reduced."""
FAILED: Final = 4
"""By this it is divided after a request that nobody answered in time: the next one wants to be."""


class FetchSize:
    """A number of bytes that follows how long they take. Pure.

    An answer that takes longer than the request timeout is lost, and without a smaller size every further attempt would lose it again.
    """

    def __init__(self, most: int, limit_s: float) -> None:
        """Begin with ``most`` bytes, as for a wide link; a request must be answered within ``limit_s``."""
        self.bytes = most
        self.most: Final = most
        self._limit_s = limit_s

    def took(self, count: int, seconds: float) -> None:
        """Adapt the size to an answer of ``count`` bytes that took so many seconds. A small quick answer says nothing about a large one."""
        if seconds > SLOW * self._limit_s:
            self.bytes = max(LEAST_BYTES, self.bytes // 2)
        elif seconds < QUICK * self._limit_s and 2 * count >= self.bytes:
            self.bytes = min(self.most, self.bytes * 2)

    def failed(self) -> None:
        """They were not acknowledged, or did not come, in time."""
        self.bytes = max(LEAST_BYTES, self.bytes // FAILED)


class AdaptiveFetch:
    """Adapt the fetch size of an aiokafka consumer to how long its fetches take. A broker returns one record batch in any case."""

    def __init__(self, consumer: Any) -> None:
        """Take a consumer that is not connected yet; it begins with the sizes that it was constructed with."""
        self._consumer = consumer
        client = consumer._client
        self._partition_most: int = consumer._max_partition_fetch_bytes
        self.portion = FetchSize(consumer._fetch_max_bytes, client._request_timeout_ms / 1000)
        """Bytes of one answer, all partitions of a broker together."""
        self._send = client.send
        client.send = self._measured

    def limit(self, partition_bytes: int) -> None:
        """Limit the bytes of one partition in an answer, from the next request on."""
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
