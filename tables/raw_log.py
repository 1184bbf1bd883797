"""A changelog as the core reads it: its records lie in the bytes of a fetch, and an object is made of those that somebody looks at.

Positions move as in aiokafka's ``Fetcher.fetched_records``. What a worker's lanes fetch of their inputs is taken in another place, which counts
it (:mod:`app.worker.raw_fetch`).
"""

import bisect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

from aiokafka import TopicPartition, codec
from aiokafka.consumer.fetcher import FetchResult

import native
from ringfence_kafka.records import TolerantRecords

if TYPE_CHECKING:
    from native._core import Records

log: Final = logging.getLogger("ringfence.table")

RECORDS_AT_ONCE: Final = 200_000
BYTES_AT_ONCE: Final = 16 * 2**20
"""A fetch is smaller, mostly: then the next one is on its way while this one is gone through. To read one takes some milliseconds."""
_DECODERS: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    1: codec.gzip_decode, 2: codec.snappy_decode, 3: codec.lz4_decode, 4: codec.zstd_decode,
}  # fmt: skip


class Entry(NamedTuple):
    """One record. The order is the core's."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class RawRecords(Sequence[Entry]):
    """In order of their offsets."""

    __slots__ = ("_length", "core")

    def __init__(self, core: "Records", length: int | None = None) -> None:
        """``length``: of the records that the core has these, from the first on; None = all."""
        self.core = core
        self._length = len(core) if length is None else length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        if isinstance(index, slice):
            return list(self)[index]
        return Entry._make(self.core[range(self._length)[index]])

    def __iter__(self) -> Iterator[Entry]:
        core = self.core
        return (Entry._make(core[number]) for number in range(self._length))


def below(records: Sequence[Any], offset: int) -> Sequence[Any]:
    """Those with smaller offsets; ``records`` are in order, the core's or not."""
    if not records or records[-1].offset < offset:
        return records
    count = bisect.bisect_left(records, offset, key=lambda each: each.offset)
    return RawRecords(records.core, count) if isinstance(records, RawRecords) else records[:count]


class _Unread:
    """How reading a fetch goes on."""

    __slots__ = ("aborted", "begin", "end", "more")

    def __init__(self, parsed: TolerantRecords) -> None:
        self.begin = self.end = parsed.next_fetch_offset
        self.aborted = list(parsed._aborted_transactions)  # noqa: SLF001
        self.more = True


def take(fetcher: Any, tp: TopicPartition) -> RawRecords | None:
    """The next records of what was fetched of a partition, committed ones only; there may be none in them.

    Returns:
        None = nothing is there, or it is for aiokafka to read.
    """
    result = fetcher._records.get(tp)  # noqa: SLF001
    parsed = getattr(result, "_partition_records", None)
    if native.core is None or type(result) is not FetchResult or not isinstance(parsed, TolerantRecords):
        return None
    if not result.check_assignment(tp):
        _drop(fetcher, tp)  # what aiokafka leaves of it cannot be read
        return None
    if parsed.raw is False:
        return None
    if parsed.raw is None:
        parsed.raw = _Unread(parsed)
    unread: _Unread = parsed.raw
    try:
        found = native.core.parse(
            parsed.data, unread.begin, unread.end, unread.aborted, True, _decompress, RECORDS_AT_ONCE, BYTES_AT_ONCE
        )  # fmt: skip
    except Exception:
        log.exception("the native core failed: this fetch is read in Python; internal error, please report")
        found = None
    if found is None:
        if unread.end == unread.begin:
            parsed.raw = False
        else:  # aiokafka reads a fetch from its beginning: what is left comes again in one of its own
            _drop(fetcher, tp)
        return None
    # Nobody runs it to its end, which is where aiokafka breaks this cycle.
    parsed._records_iterator = None  # noqa: SLF001
    core, unread.end, unread.more = found
    parsed.next_fetch_offset = unread.end
    result._update_position()  # noqa: SLF001
    if not unread.more:
        _drop(fetcher, tp)
    return RawRecords(core)


def _drop(fetcher: Any, tp: TopicPartition) -> None:
    """Nothing more is there: ask for more."""
    result = fetcher._records.pop(tp)  # noqa: SLF001
    result._partition_records = None  # noqa: SLF001
    fetcher._notify(fetcher._wait_consume_future)  # noqa: SLF001


def _decompress(number: int, data: bytes) -> bytes | None:
    """None = aiokafka's own reader is to say what is wrong with it."""
    try:
        return bytes(_DECODERS[number](data))
    except Exception as error:  # noqa: BLE001 - each library has its own
        log.debug("a record batch cannot be decompressed: %r", error)
        return None
