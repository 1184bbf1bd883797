"""Takes what aiokafka has fetched of a partition as it lies in its bytes, where the core can read it.

This knows aiokafka's fetcher as :mod:`ringfence_kafka.records` does. Positions move as in ``Fetcher.fetched_records``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED

from agents import raw
from agents.batch import Held
from agents.raw import Part
from native.records import RawRecords
from ringfence_kafka import fetched
from ringfence_kafka.records import TolerantRecords


class Limits(NamedTuple):
    """Of what is taken at once."""

    records_max: int
    bytes_max: int
    """Of what they cost; but one record comes in any case."""
    record_bytes: int
    """What a record costs, whatever is in it ..."""
    copies: int
    """... and how often its parts count."""


class Taken(NamedTuple):
    """Records, and what counts of them."""

    records: RawRecords
    content: int
    """Bytes of keys, values and headers."""
    headers: int
    part: Held
    """The memory that they lie in, which others may lie in too."""


class _Unread:
    """What the core has read of a fetch and nobody has taken, and how it goes on."""

    __slots__ = ("aborted", "begin", "held", "part")

    def __init__(self, parsed: TolerantRecords) -> None:
        self.begin = parsed.next_fetch_offset
        self.aborted = list(parsed._aborted_transactions)  # noqa: SLF001
        self.part: Part | None = None
        self.held: Held | None = None


def take(fetcher: Any, tp: TopicPartition, limits: Limits, hold: Callable[[int], Held]) -> Taken | None:
    """The next records of what was fetched of a partition, without an object for each.

    ``hold`` counts bytes. A fetch is read in parts of about what is taken at once: what is decompressed of it need not be small.

    Returns:
        None = nothing is there, or it is for aiokafka to read.
    """
    there = fetched.readable(fetcher, tp)
    if there is None:
        return None
    result, parsed = there
    if parsed.raw is None:
        parsed.raw = _Unread(parsed)
    unread: _Unread = parsed.raw
    while (part := unread.part) is None or (part.more and not part.records):
        unread.part = _next(parsed, unread, limits)
        if unread.part is None:
            if part is None:
                parsed.raw = False
            else:  # aiokafka reads a fetch from its beginning: what is left comes again in one of its own
                result._update_position()  # noqa: SLF001
                fetched.drop(fetcher, tp)
            return None
        # Nobody will run it to its end, which is where aiokafka breaks this cycle: the bytes would stay until a collection.
        parsed._records_iterator = None  # noqa: SLF001
        unread.held = hold(unread.part.records.core.size())
    return _taken(fetcher, tp, unread, part, limits)


def _next(parsed: TolerantRecords, unread: _Unread, limits: Limits) -> Part | None:
    """The part behind what was taken."""
    committed = parsed._isolation_level == READ_COMMITTED  # noqa: SLF001
    part = raw.parse(
        parsed.data,
        unread.begin,
        unread.aborted,
        fetched.decompress,
        committed=committed,
        start=None if unread.part is None else unread.part.end,
        records_max=limits.records_max,
        bytes_max=max(1, limits.bytes_max // limits.copies),
    )
    if unread.part is not None:
        parsed.next_fetch_offset = unread.part.end
    return part


def _taken(fetcher: Any, tp: TopicPartition, unread: _Unread, part: Part, limits: Limits) -> Taken:
    result, held = fetcher._records[tp], unread.held  # noqa: SLF001
    parsed = result._partition_records  # noqa: SLF001
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
    result._update_position()  # noqa: SLF001
    if left or part.more:
        unread.part = part._replace(records=left)
        if not left:
            unread.held = None
    else:
        fetched.drop(fetcher, tp)
    assert held is not None  # noqa: S101 - each part has one
    return Taken(taken, content, headers, held)
