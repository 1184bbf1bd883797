"""Private parts of aiokafka's fetcher: the fetched records, and the choice of requests. Call it on the consumer's own loop."""

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
"""The core's."""


def fetcher_of(consumer: Any) -> Any:
    """Return the fetcher of a consumer that has started."""
    return consumer._fetcher


def partitions(fetcher: Any) -> list[TopicPartition]:
    """Return the partitions of which something was fetched and is not taken."""
    return list(fetcher._records)


def holds(fetcher: Any, tp: TopicPartition) -> bool:
    """Whether something of a partition was fetched and is not taken."""
    return tp in fetcher._records


def sizes(fetcher: Any) -> dict[TopicPartition, int]:
    """Bytes, as they came, of what was fetched of each partition and is not taken."""
    return {
        tp: 0
        if (found := getattr(record, "_partition_records", None)) is None
        else getattr(found, "size_in_bytes", found._records.size_in_bytes)()
        for tp, record in fetcher._records.items()
    }


def parsed(fetcher: Any, tp: TopicPartition) -> Any:
    """Return the records of what was fetched of a partition; None = there are none, or an error."""
    return getattr(fetcher._records.get(tp), "_partition_records", None)


def readable(fetcher: Any, tp: TopicPartition) -> tuple[Any, LenientRecords] | None:
    """Aiokafka's result and its records, which may be read otherwise; None = nothing is there, or it is for aiokafka to read."""
    result = fetcher._records.get(tp)
    records = getattr(result, "_partition_records", None)
    if type(result) is not FetchResult or not isinstance(records, LenientRecords) or records.raw is False:
        return None
    if not result.check_assignment(tp):
        drop(fetcher, tp)  # what aiokafka leaves of it cannot be read
        return None
    return result, records


def advance(result: Any) -> None:
    """Move the partition's position to the end of what was taken of a result."""
    result._update_position()


def drop(fetcher: Any, tp: TopicPartition) -> None:
    """Drop what is left of a partition, and ask for more."""
    result = fetcher._records.pop(tp)
    result._partition_records = None
    ask_anew(fetcher)


def ask_anew(fetcher: Any) -> None:
    """Have the fetching task look again at what to ask for."""
    fetcher._notify(fetcher._wait_consume_future)


def subscriptions(fetcher: Any) -> Any:
    """Return what the consumer is assigned, and its positions."""
    return fetcher._subscriptions


def is_closed(consumer: Any) -> bool:
    """Whether the consumer or its fetcher was closed."""
    return bool(consumer._closed or consumer._fetcher._closed)


def fetching(fetcher: Any) -> "asyncio.Task[None]":
    """Return the task that fetches; an error may have ended it."""
    task: asyncio.Task[None] = fetcher._fetch_task
    return task


def fetch_waiter(fetcher: Any) -> "asyncio.Future[None]":
    """Return a future that ends when something was fetched, or :func:`wake` is called."""
    waiter: asyncio.Future[None] = fetcher._create_fetch_waiter()
    return waiter


def wake(fetcher: Any) -> None:
    """End all waits for what is fetched."""
    for waiter in fetcher._fetch_waiters:
        if not waiter.done():
            waiter.set_result(None)


def choose_fetches(
    fetcher: Any, choose: Callable[[Any], Any], prefetch_backoff_s: float | None = None
) -> Any:
    """Replace the choice of what to ask which broker; returns the former choice. It cannot be undone.

    ``choose`` is given the assignment, and returns what the former choice does. For ``prefetch_backoff_s`` others wait for a partition that
    is not taken yet, before there is a fetch without it.
    """
    former = fetcher._get_actions_per_node
    fetcher._get_actions_per_node = choose
    if prefetch_backoff_s is not None:
        fetcher._prefetch_backoff = prefetch_backoff_s
    return former


def limit_fetches(fetcher: Any, partition_bytes: int, response_bytes: int) -> None:
    """Limit the bytes of one partition and of a whole response, from the next request on."""
    fetcher._max_partition_fetch_bytes = partition_bytes
    fetcher._fetch_max_bytes = response_bytes


def set_fetch_wait(fetcher: Any, wait_ms: int) -> None:
    """Set how long a broker may hold a fetch that finds nothing."""
    fetcher._fetch_max_wait_ms = wait_ms


def broker_of(fetcher: Any, tp: TopicPartition) -> int:
    """Return the broker that a partition is fetched from."""
    return int(fetcher._select_read_replica(tp))


def narrow(request: Any, topics: list[tuple[str, Sequence[Any]]], wait_ms: int | None) -> None:
    """Have a fetch request ask for these partitions only, and wait no longer."""
    request._topics = topics
    if wait_ms is not None:
        request._max_wait_ms = min(request._max_wait_ms, wait_ms)


def decompress(number: int, data: bytes) -> bytes | bool | None:
    """Return a batch's records, by Kafka's number of their codec.

    Returns:
        None = they are damaged, and aiokafka's reader names the damage. False = they are too many for one part: see :class:`LargeBatch`.
    """
    if len(data) > PART_BYTES:
        return False
    try:
        found = whole(number, data, PART_BYTES)
    except (CorruptRecordException, UnsupportedCodecError):
        return None
    return False if found is None else found


class LargeBatch:
    """A compressed batch that the core reads in parts."""

    def __init__(
        self, data: bytes, at: int, cut: Cut, stretch: Stretch, oversized: Oversized | None = None
    ) -> None:
        """Decompress nothing yet of the batch that begins at ``at`` of a fetch.

        ``cut`` finds the ends of records, and ``stretch`` makes records of the bytes between them. ``oversized``: as of :class:`RecordBytes`.

        Raises:
            CorruptRecordException: the batch cannot be decompressed.
            UnsupportedCodecError: Kafka has no such codec.
        """
        self._header = data[at : at + BATCH_HEADER_BYTES]
        self._bytes = RecordBytes(
            self._header, data[at + BATCH_HEADER_BYTES : batch_end(data, at)], cut, oversized
        )
        self._stretch = stretch

    @property
    def size(self) -> int:
        """Bytes of memory that this keeps between two parts, about."""
        return self._bytes.size

    @property
    def ended(self) -> bool:
        """Whether no other part follows."""
        return not self._bytes.left

    def next(self, start: int, records_max: int, bytes_max: int) -> tuple[Any, int] | None:
        """Return the core's records of the next part, from an offset on, and where what follows begins.

        There are none only at the end of the batch.

        Returns:
            None = it is for aiokafka to read.
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
