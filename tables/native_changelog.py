"""Reads a changelog with the native core. Records stay in the bytes of a fetch, and only requested ones become objects.

Positions move as in aiokafka's ``Fetcher.fetched_records``.
"""

import bisect
import logging
from collections.abc import Sequence
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError

import native
from native.records import RawRecords
from ringfence_kafka.aiokafka_patches import fetch_buffer
from ringfence_kafka.aiokafka_patches.fetch_buffer import LargeBatch
from ringfence_kafka.aiokafka_patches.lenient_records import LenientRecords

log: Final = logging.getLogger("ringfence.table")

RECORDS_AT_ONCE: Final = 200_000
BYTES_AT_ONCE: Final = 16 * 2**20
"""Mostly more than a fetch, so that the next fetch runs while this one is processed. Parsing takes some milliseconds."""


def below(records: Sequence[Any], offset: int) -> Sequence[Any]:
    """Return the records with smaller offsets. ``records`` are ordered, the core's or aiokafka's."""
    if not records or records[-1].offset < offset:
        return records
    return records[: bisect.bisect_left(records, offset, key=lambda each: each.offset)]


class _Unread:
    """Reading position within a fetch."""

    __slots__ = ("aborted", "begin", "end", "large", "more")

    def __init__(self, parsed: LenientRecords) -> None:
        self.begin = self.end = parsed.next_fetch_offset
        self.aborted = parsed.aborted
        self.more = True
        self.large: LargeBatch | None = None
        """A batch that is read in parts, and has more parts."""

    @property
    def size(self) -> int:
        """Memory of the remaining reading beside the fetch, in bytes."""
        return 0 if self.large is None else self.large.size

    def next(self, core: Any, data: bytes) -> Any:
        """Return the core's next records; None = aiokafka must read them."""
        if self.large is None:
            found = core.parse(
                data, self.begin, self.end, self.aborted, True, fetch_buffer.decompress, RECORDS_AT_ONCE, BYTES_AT_ONCE
            )  # fmt: skip
            if found is None:
                return None
            if found[3] < 0:
                self.end, self.more = found[1:3]
                return found[0]
            self.large = LargeBatch(data, found[3], core.cut, core.stretch)
            start = found[1]
        else:
            start = self.end
        part = self.large.next(start, RECORDS_AT_ONCE, BYTES_AT_ONCE)
        if part is None or self.large.ended:
            self.large = None
        if part is None:
            return None
        self.end, self.more = part[1], True
        return part[0]


def take_records(fetcher: Any, tp: TopicPartition) -> RawRecords | None:
    """Return the next committed records of a partition's fetch; they may be empty. None = no fetch, or aiokafka must read it."""
    if native.core is None or (there := fetch_buffer.readable(fetcher, tp)) is None:
        return None
    result, parsed = there
    if parsed.raw is None:
        parsed.raw = _Unread(parsed)
    unread: _Unread = parsed.raw
    try:
        core = unread.next(native.core, parsed.data)
    except (CorruptRecordException, UnsupportedCodecError):
        core = None
    except Exception:
        log.exception("the native core failed: this fetch is read in Python; internal error, please report")
        core = None
    if core is None:
        if unread.end == unread.begin:
            parsed.raw = False
        else:  # aiokafka reads a fetch from its start, so the remaining records are fetched again
            fetch_buffer.drop(fetcher, tp)
        return None
    parsed.release()  # no reader runs it to its end
    parsed.next_fetch_offset = unread.end
    fetch_buffer.advance(result)
    if not unread.more:
        fetch_buffer.drop(fetcher, tp)
    return RawRecords(core)
