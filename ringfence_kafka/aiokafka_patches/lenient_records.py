"""Read records that aiokafka cannot: header names that are not UTF-8, and the records before a damaged batch.

Clients that treat header names as bytes can write such a name. aiokafka's parser then raises, and loses the records that it had read
before. This module reads the record batch with that name once more, by aiokafka's own parser in Python, and escapes such names. Batches
before and behind it are read as usual. Until such a name appears, aiokafka's own code does all the work.
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
"""Errors of the records of one partition, and of nothing else."""
NAME_SHOWN_MAX: Final = 100
"""Characters of a malformed name in a reason: it goes into a header of the quarantine's record, which must fit, and into the log."""


def install(record_bytes_max: int | None = None) -> None:
    """Have the consumers of this process read so. aiokafka offers only the names in its module for that."""
    LenientRecords.record_bytes_max = record_bytes_max or RECORD_BYTES_MAX
    fetcher.MemoryRecords = PartedRecords
    fetcher.PartitionRecords = LenientRecords


class LenientRecords(PartitionRecords):  # type: ignore[misc]
    """The records of a fetch, those included that aiokafka cannot read."""

    record_bytes_max = RECORD_BYTES_MAX
    """A record of a compressed batch that has more is replaced by sizes and digests, and is malformed."""
    _records: Any
    _records_iterator: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.malformed: dict[int, str] = {}
        """Offset → what is wrong, of the malformed records that were met."""
        self.raw: Any = None
        """For who reads the bytes otherwise: what it has made of them."""
        self.bytes_max = TAKEN_BYTES
        """Bytes that are taken at once, but at least one record."""
        self.oversized = Oversized(self.record_bytes_max, self.malformed)
        self._fetched_at = self.next_fetch_offset
        self._fetched = self._records
        if isinstance(self._records, PartedRecords):
            self._records.leniently = partial(_LenientBatch, malformed=self.malformed)
            self._records.oversized = self.oversized

    def size_in_bytes(self) -> int:
        """Bytes of memory: of the fetch, and of what reading on takes."""
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
        """Break the cycle that aiokafka breaks at the end of the records: the bytes would stay until a collection."""
        self._records_iterator = None

    @property
    def data(self) -> bytes:
        """The record batches, as the broker sent them."""
        return bytes(self._fetched.data)

    def __next__(self) -> Any:
        """Return the next record.

        Raises:
            CorruptRecordException: the record batch that comes next cannot be read at all. All before it is read.
            OldFormatError: the same, of a message that Kafka before 0.11 wrote.
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
                # Records that were read go first: the next fetch begins with the batch that cannot be read.
                self._records_iterator = None
                raise StopIteration from None
            if isinstance(error, OldFormatError):
                raise
            raise CorruptRecordException(repr(error)) from error

    def _go_on_leniently(self) -> None:
        """Read the batch at hand again. The list of aborted transactions up to it is kept."""
        batches = _MemoryRecordsPy(self._fetched.data)
        while True:
            at_hand = batches._next_slice
            if batches.next_batch().next_offset > self.next_fetch_offset:
                break
        self._records = _Again(_LenientBatch(at_hand, self.malformed), self._records)
        self._records_iterator = self._unpack_records()


class _Again:
    """A batch that is read again, then those behind it."""

    def __init__(self, batch: "_LenientBatch", behind: Any) -> None:
        self._batch: _LenientBatch | None = batch
        self._behind = behind

    def has_next(self) -> bool:
        return self._batch is not None or self._behind.has_next()

    def size_in_bytes(self) -> int:
        """Return the size of the whole fetch."""
        return int(self._behind.size_in_bytes())

    def next_batch(self) -> Any:
        batch, self._batch = self._batch, None
        return self._behind.next_batch() if batch is None else batch


class _LenientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]
    """A record batch whose header names may lack UTF-8: their bytes become hexadecimal escapes."""

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
    """Return the text on one line, cut where it is long."""
    cut = name if len(name) <= NAME_SHOWN_MAX else name[: NAME_SHOWN_MAX - 1] + "…"
    return printable(cut)


class _Lenient(bytearray):
    """Bytes that always decode to text: invalid UTF-8 becomes surrogates, which no other text contains."""

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        return _Lenient(part) if isinstance(index, slice) else part

    def decode(self, encoding: str = "utf-8", errors: str = "") -> str:
        return super().decode(encoding, "surrogateescape")
