"""What aiokafka has fetched of a partition, for who reads its bytes otherwise. Knows aiokafka's fetcher as :mod:`ringfence_kafka.aiokafka_patches.lenient_records` does."""

from collections.abc import Callable
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


def readable(fetcher: Any, tp: TopicPartition) -> tuple[Any, LenientRecords] | None:
    """Aiokafka's result and its records, which may be read otherwise; None = nothing is there, or it is for aiokafka to read."""
    result = fetcher._records.get(tp)
    parsed = getattr(result, "_partition_records", None)
    if type(result) is not FetchResult or not isinstance(parsed, LenientRecords) or parsed.raw is False:
        return None
    if not result.check_assignment(tp):
        drop(fetcher, tp)  # what aiokafka leaves of it cannot be read
        return None
    return result, parsed


def drop(fetcher: Any, tp: TopicPartition) -> None:
    """Nothing more is there: ask for more."""
    result = fetcher._records.pop(tp)
    result._partition_records = None
    fetcher._notify(fetcher._wait_consume_future)


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
        """Decompress nothing yet.

        Args:
            data: Of the fetch.
            at: Where the batch begins in it.
            cut: Finds the ends of records.
            stretch: Makes records of the bytes between them.
            oversized: Takes notes of records that are replaced; None = records of any size are read whole.

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
        """Whether there is no other part."""
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
