"""Records of a fetch that stay in the fetched bytes (:class:`native.records.RawRecords`).

They are a sequence of records in Python. :mod:`agents.output.native_build` passes their bytes to the native core.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import native
from agents.batch.record import Record
from native.records import RawRecords

log: Final = logging.getLogger("ringfence.lane")

Decompress = Callable[[int, bytes], bytes | bool | None]


class Part(NamedTuple):
    """Parsed part of a fetch."""

    records: RawRecords
    end: int
    """Offset at which the next part or the next fetch begins."""
    more: bool
    """Whether the fetch has another part."""
    large_at: int = -1
    """Position, in the fetched bytes, of a record batch that is too large for one part; this part then has no records. -1 = none."""


def parse(
    data: bytes,
    begin: int,
    aborted: Sequence[tuple[int, int]],
    decompress: Decompress,
    *,
    committed: bool = True,
    start: int | None = None,
    records_max: int = sys.maxsize,
    bytes_max: int = sys.maxsize,
) -> Part | None:
    """Return committed records of a fetch: all of them, or the next record batches up to a limit.

    Args:
        data: Record batches as the broker sent them.
        begin: Offset at which the fetch began; records below it are left out.
        aborted: Producer ID and first offset of each aborted transaction, ordered by offset.
        decompress: Takes codec and bytes, returns bytes. None = aiokafka must report the problem; False = the result is too large.
        committed: Whether to leave out aborted and undecided records.
        start: End of the previous part; None = this is the first part.
        records_max: Stop after this number of records.
        bytes_max: Stop after this number of decompressed bytes.

    Returns:
        The part; None = aiokafka must read the fetch, because the native core is missing or the fetch has unusual content.
    """
    if native.core is None:
        return None
    start = begin if start is None else start
    try:
        found = native.core.parse(
            data, begin, start, list(aborted), committed, decompress, records_max, bytes_max
        )
    except Exception:
        log.exception("the native core failed: this fetch is read in Python; internal error, please report")
        return None
    return None if found is None else Part(RawRecords(found[0]), *found[1:])


def joined(first: Sequence[Record], later: Sequence[Record]) -> Sequence[Record]:
    """Return both sequences as one."""
    if isinstance(first, RawRecords) and isinstance(later, RawRecords):
        return RawRecords(first.core.joined(later.core))
    return [*first, *later]


def since(records: Sequence[Record], offset: int) -> Sequence[Record]:
    """Return the records at or above an offset."""
    if isinstance(records, RawRecords):
        return RawRecords(records.core.since(offset))
    return [record for record in records if record.offset >= offset]


def plain(records: Sequence[Record]) -> Any:
    """Return the records in the native core's form; None = the core cannot process them."""
    return records.core if isinstance(records, RawRecords) and native.core is not None else None
