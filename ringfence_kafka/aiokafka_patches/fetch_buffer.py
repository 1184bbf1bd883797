"""Private parts of aiokafka's fetcher: fetched records, and the choice of requests. Call these functions on the consumer's event loop."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError

from ringfence_kafka.aiokafka_patches.batch_parts import PART_BYTES, Cut, Oversized, RecordBytes
from ringfence_kafka.aiokafka_patches.lenient_records import LenientRecords
from ringfence_kafka.protocol.decompression import whole
from ringfence_kafka.protocol.record_batch import BATCH_HEADER_BYTES, batch_end, end_offset

Stretch = Callable[[bytes, bytes, int, int], Any]
"""Function of the native core that parses uncompressed records."""


def fetcher_of(consumer: Any) -> Any:
    """Return the fetcher of a started consumer."""
    return consumer._fetcher


def partitions(fetcher: Any) -> list[TopicPartition]:
    """Return the partitions with fetched records that are not taken yet."""
    return list(fetcher._records)


def holds(fetcher: Any, tp: TopicPartition) -> bool:
    """Return whether a partition has fetched records that are not taken yet."""
    return tp in fetcher._records


def sizes(fetcher: Any) -> dict[TopicPartition, int]:
    """Return the received bytes of fetched records that are not taken yet, by partition."""
    return {
        tp: 0
        if (found := getattr(record, "_partition_records", None)) is None
        else getattr(found, "size_in_bytes", found._records.size_in_bytes)()
        for tp, record in fetcher._records.items()
    }


def parsed(fetcher: Any, tp: TopicPartition) -> Any:
    """Return the parsed records of a fetched partition; None = there are none, or an error."""
    return getattr(fetcher._records.get(tp), "_partition_records", None)


def readable(fetcher: Any, tp: TopicPartition) -> tuple[Any, LenientRecords] | None:
    """Return aiokafka's result and its records, for another reader; None = nothing is fetched, or aiokafka must read it."""
    result = fetcher._records.get(tp)
    records = getattr(result, "_partition_records", None)
    if type(result) is not FetchResult or not isinstance(records, LenientRecords) or records.raw is False:
        return None
    if not result.check_assignment(tp):
        drop(fetcher, tp)  # what aiokafka leaves of it cannot be read
        return None
    return result, records


def advance(result: Any) -> None:
    """Move the partition's position to the end of the taken records."""
    result._update_position()


def drop(fetcher: Any, tp: TopicPartition) -> None:
    """Discard the remaining records of a partition, and start a new fetch."""
    result = fetcher._records.pop(tp)
    result._partition_records = None
    wake_fetching_task(fetcher)


def wake_fetching_task(fetcher: Any) -> None:
    """Wake the fetching task, so that it chooses its requests again."""
    fetcher._notify(fetcher._wait_consume_future)


def subscriptions(fetcher: Any) -> Any:
    """Return the assignment of the consumer, with its positions."""
    return fetcher._subscriptions


def is_closed(consumer: Any) -> bool:
    """Return whether the consumer or its fetcher was closed."""
    return bool(consumer._closed or consumer._fetcher._closed)


def fetching(fetcher: Any) -> "asyncio.Task[None]":
    """Return the fetching task. An error may have ended it."""
    task: asyncio.Task[None] = fetcher._fetch_task
    return task


def fetch_waiter(fetcher: Any) -> "asyncio.Future[None]":
    """Return a future that ends after a fetch, or after a call of :func:`wake`."""
    waiter: asyncio.Future[None] = fetcher._create_fetch_waiter()
    return waiter


def wake(fetcher: Any) -> None:
    """End all waits for fetched records."""
    for waiter in fetcher._fetch_waiters:
        if not waiter.done():
            waiter.set_result(None)


def choose_fetches(
    fetcher: Any, choose: Callable[[Any], Any], prefetch_backoff_s: float | None = None
) -> Any:
    """Replace the choice of fetch requests; return the former choice. This cannot be undone.

    ``choose`` gets the assignment and returns the same as the former choice. ``prefetch_backoff_s``: time that other partitions wait for
    an untaken one before a fetch without it, in seconds.
    """
    former = fetcher._get_actions_per_node
    fetcher._get_actions_per_node = choose
    if prefetch_backoff_s is not None:
        fetcher._prefetch_backoff = prefetch_backoff_s
    return former


def limit_fetches(fetcher: Any, partition_bytes: int, response_bytes: int) -> None:
    """Limit the sizes of one partition and of a whole response, in bytes, from the next request on."""
    fetcher._max_partition_fetch_bytes = partition_bytes
    fetcher._fetch_max_bytes = response_bytes


def set_fetch_wait(fetcher: Any, wait_ms: int) -> None:
    """Set how long a broker may hold a fetch without records, in ms."""
    fetcher._fetch_max_wait_ms = wait_ms


def broker_of(fetcher: Any, tp: TopicPartition) -> int:
    """Return the broker that a partition is fetched from."""
    return int(fetcher._select_read_replica(tp))


def narrow(request: Any, topics: list[tuple[str, Sequence[Any]]], wait_ms: int | None) -> None:
    """Restrict a fetch request to these partitions and a maximum wait."""
    request._topics = topics
    if wait_ms is not None:
        request._max_wait_ms = min(request._max_wait_ms, wait_ms)


def decompress(number: int, data: bytes) -> bytes | bool | None:
    """Return the decompressed records of a batch. ``number``: Kafka's number of the codec.

    Returns:
        None = the bytes are damaged, and aiokafka's reader reports the damage. False = too large for one part: see :class:`LargeBatch`.
    """
    if len(data) > PART_BYTES:
        return False
    try:
        found = whole(number, data, PART_BYTES)
    except (CorruptRecordException, UnsupportedCodecError):
        return None
    return False if found is None else found


class LargeBatch:
    """Compressed batch that the native core reads in parts."""

    def __init__(
        self, data: bytes, at: int, cut: Cut, stretch: Stretch, oversized: Oversized | None = None
    ) -> None:
        """Create the batch that begins at ``at`` of a fetch. Nothing is decompressed yet.

        ``cut`` finds the ends of records, and ``stretch`` parses the bytes between them. ``oversized``: see :class:`RecordBytes`. Raises as
        :class:`ringfence_kafka.protocol.decompression.Stream`.
        """
        self._header = data[at : at + BATCH_HEADER_BYTES]
        self._bytes = RecordBytes(
            self._header, data[at + BATCH_HEADER_BYTES : batch_end(data, at)], cut, oversized
        )
        self._stretch = stretch

    @property
    def size(self) -> int:
        """Approximate memory between two parts, in bytes."""
        return self._bytes.size

    @property
    def ended(self) -> bool:
        """Whether no other part follows."""
        return not self._bytes.left

    def next(self, start: int, records_max: int, bytes_max: int) -> tuple[Any, int] | None:
        """Return the core's records of the next part, at or above an offset, and the start of what follows.

        They are empty only at the end of the batch.

        Returns:
            None = aiokafka must read the batch.
        """
        try:
            while not self.ended:
                data, count = self._bytes.next(bytes_max, records_max)
                records = self._stretch(self._header, data, count, start)
                if records is None:
                    return None
                if self.ended:
                    break
                if len(records):
                    return records, records.offset(len(records) - 1) + 1
            else:
                return self._stretch(self._header, b"", 0, start), end_offset(self._header)
        except CorruptRecordException:
            return None
        return records, end_offset(self._header)
