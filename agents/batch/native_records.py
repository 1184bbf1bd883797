"""Records of a fetch in the bytes of the fetch (:class:`native.records.RawRecords`).

They serve as a sequence of records; :mod:`agents.output.native_build` has the core work on their bytes.
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
    """Part of a fetch."""

    records: RawRecords
    end: int
    """Offset at which the next part, or the next fetch, begins."""
    more: bool
    """There is a next part."""
    large_at: int = -1
    """Position of the next batch in the bytes of the fetch, if it is too large for one part; this part then has no records. -1 = it is
    not."""


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
    """Return the committed records of a fetch: all, or those of the next record batches until there are enough.

    Args:
        data: Record batches as the broker sent them.
        begin: Offset at which the fetch began; records below it are left out.
        aborted: Producer and first offset of each aborted transaction, in order of the offsets.
        decompress: Codec and bytes → the bytes; None = another reader has to report their problem; False = they are too many.
        committed: False: what was aborted, and what is not decided, is wanted too.
        start: End of the part before this one; None = this is the first.
        records_max: Number of records that is enough.
        bytes_max: Number of bytes of decompressed batches that is enough, too.

    Returns:
        None = aiokafka has to read the fetch: the core is missing, or the fetch holds something unusual.
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
    """Both, in that order."""
    if isinstance(first, RawRecords) and isinstance(later, RawRecords):
        return RawRecords(first.core.joined(later.core))
    return [*first, *later]


def since(records: Sequence[Record], offset: int) -> Sequence[Record]:
    """Those from an offset on."""
    if isinstance(records, RawRecords):
        return RawRecords(records.core.since(offset))
    return [record for record in records if record.offset >= offset]


def plain(records: Sequence[Record]) -> Any:
    """Return the records in the core's form; None = the core cannot process them."""
    return records.core if isinstance(records, RawRecords) and native.core is not None else None
