"""Takes records out of the bytes that aiokafka fetched, if the native core can read them.

Like :mod:`ringfence_kafka.aiokafka_patches.lenient_records` it depends on aiokafka's fetcher. Positions move
as in ``Fetcher.fetched_records``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError

import native
from agents.batch import native_records
from agents.batch.batch import Held
from agents.batch.native_records import Part
from native.records import RawRecords
from ringfence_kafka.aiokafka_patches import fetch_buffer
from ringfence_kafka.aiokafka_patches.fetch_buffer import LargeBatch
from ringfence_kafka.aiokafka_patches.lenient_records import LenientRecords


class Limits(NamedTuple):
    """Limits of one batch."""

    records_max: int
    bytes_max: int
    """Memory limit of the records; a single larger record is allowed."""
    record_bytes: int
    """Memory of a record beside its contents, in bytes."""
    copies: int
    """Number of copies by which contents count."""


class Taken(NamedTuple):
    """Records and their sizes."""

    records: RawRecords
    content: int
    """Bytes of keys, values and headers."""
    headers: int
    part: Held
    """Memory of the records' bytes, which other batches may share."""


class _Unread:
    """Records of a fetch that the core has read but no batch has taken yet."""

    __slots__ = ("aborted", "begin", "held", "large", "part")

    def __init__(self, parsed: LenientRecords) -> None:
        self.begin = parsed.next_fetch_offset
        self.aborted = parsed.aborted
        self.part: Part | None = None
        self.held: Held | None = None
        self.large: LargeBatch | None = None
        """Batch that is read in parts, if parts remain."""

    @property
    def size(self) -> int:
        """Bytes of memory for further parts, beside the fetch."""
        return 0 if self.large is None else self.large.size


def take_records(
    fetcher: Any, tp: TopicPartition, limits: Limits, hold: Callable[[int], Held]
) -> Taken | None:
    """Return the next fetched records of a partition without creating objects; None = none for the core.

    ``hold`` counts bytes. A fetch is read in parts of about one batch, because it may be large when
    decompressed.
    """
    readable = fetch_buffer.readable(fetcher, tp)
    if readable is None:
        return None
    result, parsed = readable
    if parsed.raw is None:
        parsed.raw = _Unread(parsed)
    unread: _Unread = parsed.raw
    while (part := unread.part) is None or (part.more and not part.records):
        unread.part = _next(parsed, unread, limits)
        if unread.part is None:
            if part is None:
                parsed.raw = False
            else:  # aiokafka reads a fetch from its beginning, so the rest must be fetched again
                fetch_buffer.advance(result)
                fetch_buffer.drop(fetcher, tp)
            return None
        parsed.release()  # aiokafka will not read this fetch to its end
        unread.held = hold(unread.part.records.core.size())
    return _taken(fetcher, tp, readable, unread, part, limits)


def _next(parsed: LenientRecords, unread: _Unread, limits: Limits) -> Part | None:
    """Return the part after the taken one. It decompresses one record, or as much as there is room for."""
    start = unread.begin if unread.part is None else unread.part.end
    bytes_max = max(1, limits.bytes_max // limits.copies)
    if unread.large is not None:
        part = _of_large(unread, start, limits.records_max, bytes_max)
    else:
        part = native_records.parse(
            parsed.data,
            unread.begin,
            unread.aborted,
            fetch_buffer.decompress,
            committed=parsed.committed_only,
            start=start,
            records_max=limits.records_max,
            bytes_max=bytes_max,
        )
        if part is not None and part.large_at >= 0:
            unread.large = _large(parsed, part.large_at)
            part = _of_large(unread, part.end, limits.records_max, bytes_max)
    if unread.part is not None:
        parsed.next_fetch_offset = unread.part.end
    return part


def _large(parsed: LenientRecords, at: int) -> LargeBatch | None:
    """Return the record batch at a position, for reading in parts; None = only aiokafka can read it."""
    if native.core is None:
        return None
    try:
        return LargeBatch(parsed.data, at, native.core.cut, native.core.stretch, parsed.oversized)
    except (CorruptRecordException, UnsupportedCodecError):
        return None


def _of_large(unread: _Unread, start: int, records_max: int, bytes_max: int) -> Part | None:
    """Return the next part of a batch that is too large to be read whole."""
    part = None if unread.large is None else unread.large.next(start, records_max, bytes_max)
    if part is None or unread.large is None or unread.large.ended:
        unread.large = None
    return None if part is None else Part(RawRecords(part[0]), part[1], more=True)


def _taken(
    fetcher: Any,
    tp: TopicPartition,
    readable: tuple[Any, LenientRecords],
    unread: _Unread,
    part: Part,
    limits: Limits,
) -> Taken:
    (result, parsed), held = readable, unread.held
    records = part.records
    count, content, headers = records.core.fitting(
        limits.record_bytes, limits.copies, limits.bytes_max, limits.records_max
    )
    if count < len(records):
        taken = RawRecords(records.core.slice(0, count))
        left = RawRecords(records.core.slice(count, len(records)))
        parsed.next_fetch_offset = taken.core.offset(count - 1) + 1
    else:
        taken, left = records, RawRecords(records.core.slice(0, 0))
        parsed.next_fetch_offset = part.end
    fetch_buffer.advance(result)
    if left or part.more:
        unread.part = part._replace(records=left)
        if not left:
            unread.held = None
    else:
        fetch_buffer.drop(fetcher, tp)
    assert held is not None  # noqa: S101 - each part has one
    return Taken(taken, content, headers, held)
