"""Compressed record batches that aiokafka reads in parts, within the bytes that there is room for.

aiokafka decompresses a batch at once, and ``getmany`` returns all its records. Here a part of the batch becomes a batch of its own,
uncompressed, which aiokafka reads as ever; the next part is decompressed when its turn comes. A part ends at the end of a record.
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
"""Decompressed at once, but at least one record."""
TAKEN_BYTES: Final = 2**20
"""Bytes of one partition that a caller without a limit of its own takes at once; at least one record."""
HEADER_BYTES: Final = 170
"""Bytes of memory that a record header costs as an object, besides its name and value. Measured with CPython 3.11."""

Cut = Callable[[bytes, int, int], tuple[int, int]]
Parse = Callable[[bytes], Any]
"""Makes of an uncompressed batch an iterator over its records."""


class Oversized(NamedTuple):
    """Records that are too large to be read whole: see :mod:`ringfence_kafka.protocol.oversized_records`."""

    limit: int
    """Bytes that a record may have."""
    malformed: dict[int, str]
    """By offset, why a record was replaced."""


class RecordBytes:
    """The bytes of a compressed batch's records, cut at the ends of records."""

    def __init__(
        self, header: bytes, compressed: bytes, cut: Cut | None = None, oversized: Oversized | None = None
    ) -> None:
        """Create parts that are not decompressed yet.

        ``cut`` does quickly what :func:`whole_records` does. ``oversized`` takes notes of records that are replaced; None = all are read whole.

        Raises:
            CorruptRecordException: the bytes do not begin as their codec does.
            UnsupportedCodecError: Kafka has no such codec.
        """
        self.stream: Final = Stream(codec_of(header, 0), compressed)
        self.left = count_of(header)
        """Records that are not handed out."""
        self._bytes = b""
        self._ended = False
        self._cut = cut or whole_records
        self._begin = base_offset(header)
        self._oversized = oversized

    @property
    def size(self) -> int:
        """Bytes of memory that this keeps, about: the library's window, and what it has decompressed beyond the last part."""
        return self.stream.window + len(self._bytes)

    def next(self, bytes_max: int, records_max: int) -> tuple[bytes, int]:
        """Return the bytes of the next records, and how many these are: at least one, else no more than the limits.

        Raises:
            CorruptRecordException: there are fewer or more bytes than the records have.
        """
        self._fill(bytes_max)
        if self._ended and self.left <= records_max:  # nearly always: no record is looked at
            found, count = self._bytes, self.left
            self._bytes, self.left = b"", 0
            return found, count
        end, count = self._cut(self._bytes, min(records_max, self.left), bytes_max)
        while not count:  # one record has more, or its length is cut off
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
        """Make sure that nothing stands behind the last record."""
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
    """A compressed batch as aiokafka's :class:`PartitionRecords` iterates over it."""

    def __init__(
        self, batch: Any, data: bytes, leniently: Parse | None, oversized: Oversized | None = None
    ) -> None:
        """Decompress nothing of aiokafka's ``batch`` yet, whose bytes are ``data``.

        ``leniently`` makes a part's records where a header name is not UTF-8; None = that is an error. ``oversized``: as of :class:`RecordBytes`.
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
        """Bytes of memory that the reading keeps now, beside the batch itself."""
        return 0 if self._records is None else self._records.size + len(self._part_bytes)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Return the next record.

        Raises:
            CorruptRecordException: it cannot be read.
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
            if not count_of(self._header):  # the broker's cleaner has left none
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
    """The record batches of a fetch, of which compressed ones are read in parts."""

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
            CorruptRecordException: it is shorter than any.
            OldFormatError: Kafka before 0.11 wrote it.
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
        """Bytes of memory: of the fetch, and of what is decompressed of it."""
        return len(self.data) + (0 if self._reading is None else self._reading.size)


def _getall(self: FetchResult, max_records: int | None = None) -> list[Any]:
    """Aiokafka's own, which ends also where there are enough bytes."""
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
    """Whether a control batch ends an aborted transaction; not one that the broker's cleaner has emptied.

    The cleaner keeps the last batch of a producer that has written nothing since, without its records. With transactions v2 that is always a
    marker. aiokafka raises then, and reads nothing behind it for as long as the broker knows the producer, a day. Java's client reads on.
    """
    control = next(batch, None)
    return control is not None and ControlRecord.parse(control.key) == ABORT_MARKER


def install() -> None:
    """Have the consumers of this process read so; aiokafka offers no other way than its names."""
    FetchResult.getall = _getall
    fetcher.MemoryRecords = PartedRecords
    PartitionRecords._contains_abort_marker = _contains_abort_marker
