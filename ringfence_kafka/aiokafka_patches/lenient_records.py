"""Reads records that aiokafka cannot read: with header names that are not UTF-8, or before a damaged batch.

Clients that treat header names as bytes can write such names. aiokafka's parser then raises, and loses the records that it had parsed.
This module parses the affected batch again with aiokafka's parser in Python, and escapes such names. All other batches are parsed as
usual. Until such a name occurs, only aiokafka's own code runs.
"""

from functools import partial
from typing import Any, Final

from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException, RecordTooLargeError, UnsupportedCodecError
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy

from ringfence_kafka.aiokafka_patches.batch_parts import TAKEN_BYTES, Oversized, PartedRecords
from ringfence_kafka.escaping import printable
from ringfence_kafka.protocol.oversized_records import RECORD_BYTES_MAX
from ringfence_kafka.protocol.record_batch import OldFormatError

UNREADABLE_ERRORS: Final = (
    CorruptRecordException,
    RecordTooLargeError,
    UnicodeDecodeError,
    UnsupportedCodecError,
)
"""Errors that concern only the records of one partition."""
NAME_SHOWN_MAX: Final = 100
"""Maximum number of characters of a malformed name in a reason, which must fit into a quarantine header and the log."""


def install(record_bytes_max: int | None = None) -> None:
    """Patch the consumers of this process. aiokafka offers no other way than its module's names."""
    LenientRecords.record_bytes_max = record_bytes_max or RECORD_BYTES_MAX
    fetcher.MemoryRecords = PartedRecords
    fetcher.PartitionRecords = LenientRecords


class LenientRecords(PartitionRecords):  # type: ignore[misc]
    """Records of a fetch, including those that aiokafka cannot read."""

    record_bytes_max = RECORD_BYTES_MAX
    """Size limit of a record in a compressed batch, in bytes. Larger records are replaced by sizes and digests, and count as malformed."""
    _records: Any
    _records_iterator: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.malformed: dict[int, str] = {}
        """Problems of the malformed records so far, by offset."""
        self.raw: Any = None
        """State of another reader of the bytes; False = it cannot read them."""
        self.bytes_max = TAKEN_BYTES
        """Maximum size of the records that are taken at once, in bytes, but at least one record."""
        self.oversized = Oversized(self.record_bytes_max, self.malformed)
        self._fetched_at = self.next_fetch_offset
        self._fetched = self._records
        if isinstance(self._records, PartedRecords):
            self._records.leniently = partial(_LenientBatch, malformed=self.malformed)
            self._records.oversized = self.oversized

    def size_in_bytes(self) -> int:
        """Return the memory of the fetch and of further reading, in bytes."""
        beside = getattr(self.raw, "size", 0)
        return int(self._records.size_in_bytes()) + int(beside)

    @property
    def aborted(self) -> list[tuple[int, int]]:
        """Producer ID and first offset of each aborted transaction of the fetch."""
        return list(self._aborted_transactions)

    @property
    def committed_only(self) -> bool:
        """Whether records of aborted transactions are left out."""
        return bool(self._isolation_level == READ_COMMITTED)

    def release(self) -> None:
        """Break the reference cycle that aiokafka breaks at the end of the records: otherwise the bytes stay until a garbage collection."""
        self._records_iterator = None

    @property
    def data(self) -> bytes:
        """Record batches as the broker sent them."""
        return bytes(self._fetched.data)

    def __next__(self) -> Any:
        """Return the next record.

        Raises:
            CorruptRecordException: the next record batch cannot be read. All records before it were returned.
            OldFormatError: the same, for a message that Kafka before 0.11 wrote.
        """
        try:
            return next(self._records_iterator)
        except StopIteration:
            self._records_iterator = None
            raise
        except UnicodeDecodeError:
            self._go_on_leniently()
            return next(self)
        except Exception as error:
            if self.next_fetch_offset > self._fetched_at:
                # Records that were read are returned first: the next fetch begins with the unreadable batch.
                self._records_iterator = None
                raise StopIteration from None
            if isinstance(error, OldFormatError):
                raise
            raise CorruptRecordException(repr(error)) from error

    def _go_on_leniently(self) -> None:
        """Parse the present batch again. The list of aborted transactions up to it is kept."""
        batches = _MemoryRecordsPy(self._fetched.data)
        while True:
            at_hand = batches._next_slice
            if batches.next_batch().next_offset > self.next_fetch_offset:
                break
        self._records = _Again(_LenientBatch(at_hand, self.malformed), self._records)
        self._records_iterator = self._unpack_records()


class _Again:
    """A batch that is parsed again, followed by the remaining batches."""

    def __init__(self, batch: "_LenientBatch", behind: Any) -> None:
        self._batch: _LenientBatch | None = batch
        self._behind = behind

    def has_next(self) -> bool:
        return self._batch is not None or self._behind.has_next()

    def size_in_bytes(self) -> int:
        """Return the size of the whole fetch, in bytes."""
        return int(self._behind.size_in_bytes())

    def next_batch(self) -> Any:
        batch, self._batch = self._batch, None
        return self._behind.next_batch() if batch is None else batch


class _LenientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]
    """Record batch with header names that may not be UTF-8: invalid bytes become hexadecimal escapes."""

    _buffer: Any

    def __init__(self, buffer: bytes | memoryview, malformed: dict[int, str]) -> None:
        super().__init__(buffer)
        self._malformed = malformed

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = _Lenient(self._buffer)

    def _read_msg(self, *args: Any) -> Any:
        record = super()._read_msg(*args)
        for number, (name, value) in enumerate(record.headers):
            escaped = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
            if escaped != name:
                record.headers[number] = (escaped, value)
                self._malformed[record.offset] = f"the header name {_shown(escaped)} is not UTF-8"
        return record


def _shown(name: str) -> str:
    """Return the text on one line, cut if it is long."""
    cut = name if len(name) <= NAME_SHOWN_MAX else name[: NAME_SHOWN_MAX - 1] + "…"
    return printable(cut)


class _Lenient(bytearray):
    """Bytes that always decode to text: invalid UTF-8 becomes surrogates, which no other text contains."""

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        return _Lenient(part) if isinstance(index, slice) else part

    def decode(self, encoding: str = "utf-8", errors: str = "") -> str:
        return super().decode(encoding, "surrogateescape")
