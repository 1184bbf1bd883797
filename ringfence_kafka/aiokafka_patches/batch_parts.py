"""Reads compressed record batches in parts, within a memory limit.

aiokafka decompresses a whole batch, and ``getmany`` returns all its records. Here each part becomes an uncompressed batch of its own,
which aiokafka reads as usual; the next part is decompressed when it is needed. A part ends with a complete record.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Self

from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.control_record import ABORT_MARKER, ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from ringfence_kafka.protocol.decompression import Stream
from ringfence_kafka.protocol.oversized_records import replace
from ringfence_kafka.protocol.record_batch import (
    BATCH_HEADER_BYTES,
    base_offset,
    batch_end,
    codec_of,
    count_of,
    record_end,
    require_format,
    uncompressed,
    whole_records,
)

PART_BYTES: Final = 2**19
"""Maximum size of one decompressed part, in bytes, but at least one record."""
TAKEN_BYTES: Final = 2**20
"""Maximum size of the records of one partition that a caller without its own limit gets at once, in bytes, but at least one record."""
HEADER_BYTES: Final = 170
"""Memory of a record header as an object, without its name and value, in bytes. Measured with CPython 3.11."""

Cut = Callable[[bytes, int, int], tuple[int, int]]
Parse = Callable[[bytes], Any]
"""Returns an iterator over the records of an uncompressed batch."""


class Oversized(NamedTuple):
    """Handling of records that are too large to be read whole: see :mod:`ringfence_kafka.protocol.oversized_records`."""

    limit: int
    """Maximum size of a record, in bytes."""
    malformed: dict[int, str]
    """Reasons of replaced records by offset."""


class RecordBytes:
    """Bytes of a compressed batch's records, cut at the ends of records."""

    def __init__(
        self, header: bytes, compressed: bytes, cut: Cut | None = None, oversized: Oversized | None = None
    ) -> None:
        """Create the parts. Nothing is decompressed yet.

        ``cut`` is a fast replacement of :func:`whole_records`. ``oversized`` receives the reasons of replaced records; None = read all whole. Raises as
        :class:`ringfence_kafka.protocol.decompression.Stream`.
        """
        self.stream: Final = Stream(codec_of(header, 0), compressed)
        self.left = count_of(header)
        """Number of records that are not returned yet."""
        self._bytes = b""
        self._ended = False
        self._cut = cut or whole_records
        self._begin = base_offset(header)
        self._oversized = oversized

    @property
    def size(self) -> int:
        """Approximate memory use in bytes: the library's window, and decompressed bytes after the last part."""
        return self.stream.window + len(self._bytes)

    def next(self, bytes_max: int, records_max: int) -> tuple[bytes, int]:
        """Return the bytes of the next records and their number: at least one, otherwise within the limits.

        Raises:
            CorruptRecordException: there are fewer or more bytes than the records have.
        """
        self._fill(bytes_max)
        if self._ended and self.left <= records_max:  # the usual case, without a look at any record
            found, count = self._bytes, self.left
            self._bytes, self.left = b"", 0
            return found, count
        end, count = self._cut(self._bytes, min(records_max, self.left), bytes_max)
        while not count:  # one record is larger, or its length is cut off
            before, end = len(self._bytes), record_end(self._bytes)
            if self._oversized is not None and end > max(self._oversized.limit, before + 1):
                found = self._replaced(self._oversized)
                self._end_well()
                return found, 1
            self._fill(end)
            end, count = self._cut(self._bytes, 1, len(self._bytes))
            if not count and len(self._bytes) == before:
                raise CorruptRecordException(f"the batch ends {self.left} records before its header says")
        found, self._bytes = self._bytes[:end], self._bytes[end:]
        self.left -= count
        self._end_well()
        return found, count

    def _replaced(self, oversized: Oversized) -> bytes:
        found = replace(self._pull, oversized.limit)
        oversized.malformed[self._begin + found.offset_delta] = found.reason
        self.left -= 1
        return found.data

    def _pull(self, size: int) -> bytes:
        self._fill(size)
        found, self._bytes = self._bytes[:size], self._bytes[size:]
        return found

    def _end_well(self) -> None:
        """Check that no bytes follow the last record."""
        if not self.left:
            self._fill(len(self._bytes) + 1)
            if self._bytes:
                raise CorruptRecordException("bytes follow the last record of the batch")

    def _fill(self, size: int) -> None:
        if self._ended or len(self._bytes) >= size:
            return
        more = self.stream.read(size - len(self._bytes))
        if len(self._bytes) + len(more) < size:
            self._ended = True
            self.stream.close()
        self._bytes = self._bytes + more if self._bytes else more


class PartedBatch:
    """Compressed batch that aiokafka's :class:`PartitionRecords` iterates over."""

    def __init__(
        self, batch: Any, data: bytes, leniently: Parse | None, oversized: Oversized | None = None
    ) -> None:
        """Create the batch from aiokafka's ``batch`` with the bytes ``data``. Nothing is decompressed yet.

        ``leniently`` parses a part with a header name that is not UTF-8; None = raise an error. ``oversized``: see :class:`RecordBytes`.
        """
        self._batch = batch
        self._oversized = oversized
        self._header = data[:BATCH_HEADER_BYTES]
        self._data = data
        self._leniently = leniently
        self._records: RecordBytes | None = None
        self._part: Iterator[Any] = iter(())
        self._part_bytes = b""
        self._part_read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    @property
    def size(self) -> int:
        """Memory that reading uses now, without the batch itself, in bytes."""
        return 0 if self._records is None else self._records.size + len(self._part_bytes)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Return the next record.

        Raises:
            CorruptRecordException: the record cannot be read.
        """
        while True:
            try:
                record = next(self._part)
            except StopIteration:
                if not self._next_part():
                    raise
            except UnicodeDecodeError:
                if self._leniently is None:
                    raise
                self._part = iter(self._leniently(self._part_bytes))
                for _ in range(self._part_read):
                    next(self._part)
            else:
                self._part_read += 1
                return record

    def _next_part(self) -> bool:
        if self._records is None:
            if not count_of(self._header):  # log compaction has left no record
                return False
            self._records = RecordBytes(
                self._header, self._data[BATCH_HEADER_BYTES:], oversized=self._oversized
            )
        if not self._records.left:
            self._part_bytes = b""
            return False
        found, count = self._records.next(PART_BYTES, self._records.left)
        self._part_bytes = uncompressed(self._header, found, count)
        self._part_read = 0
        self._part = iter(DefaultRecordBatch(self._part_bytes))
        return True


class PartedRecords(MemoryRecords):  # type: ignore[misc]
    """Record batches of a fetch. Compressed ones are read in parts."""

    leniently: Parse | None = None
    oversized: Oversized | None = None

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = data
        self._at = 0
        self._reading: PartedBatch | None = None

    def next_batch(self) -> Any:
        """Return the next batch; None = there is none.

        Raises:
            CorruptRecordException: the bytes are too short for a batch.
            OldFormatError: Kafka before 0.11 wrote the batch.
        """
        require_format(self.data, self._at)
        batch = super().next_batch()
        if batch is None:
            return None
        begin, self._at = self._at, batch_end(self.data, self._at)
        self._reading = None
        if codec_of(self.data, begin):
            batch = self._reading = PartedBatch(
                batch, self.data[begin : self._at], self.leniently, self.oversized
            )
        return batch

    def size_in_bytes(self) -> int:
        """Return the memory of the fetch and its decompressed part, in bytes."""
        return len(self.data) + (0 if self._reading is None else self._reading.size)


def _getall(self: FetchResult, max_records: int | None = None) -> list[Any]:
    """Replace aiokafka's method by one that also stops at a limit of bytes."""
    if not self.check_assignment(self._topic_partition) or not self.has_more():
        return []
    found: list[Any] = []
    left = getattr(self._partition_records, "bytes_max", TAKEN_BYTES)
    for record in self._partition_records:
        found.append(record)
        left -= record.serialized_key_size + record.serialized_value_size + 2
        for name, value in record.headers:
            left -= HEADER_BYTES + len(name) + len(value or b"")
        if left <= 0 or (max_records is not None and len(found) >= max_records):
            self._update_position()
            break
    else:
        self._update_position()
        self._partition_records = None
    return found


def _contains_abort_marker(_: PartitionRecords, batch: Any) -> bool:
    """Return whether a control batch ends an aborted transaction; False if log compaction has emptied the batch.

    Compaction keeps the last batch of an idle producer without its records. With transactions v2 this batch is always a marker. aiokafka
    then raises, and reads no further while the broker knows the producer, which is one day. Java's client continues.
    """
    control = next(batch, None)
    return control is not None and ControlRecord.parse(control.key) == ABORT_MARKER


def install() -> None:
    """Patch the consumers of this process. aiokafka offers no other way than its module's names."""
    FetchResult.getall = _getall
    fetcher.MemoryRecords = PartedRecords
    PartitionRecords._contains_abort_marker = _contains_abort_marker
