"""Records of a fetch as they lie in its bytes: each is made when somebody looks at it, and mostly nobody does.

What works on records one by one takes these as any others. What knows them (:mod:`agents.native_path`) has the core go over them.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

import native
from agents.content import Record

if TYPE_CHECKING:
    from native._core import Records

log: Final = logging.getLogger("ringfence.lane")

Decompress = Callable[[int, bytes], bytes | None]


class RawRecord(NamedTuple):
    """One of them. The order is the core's."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class RawRecords(Sequence[Record]):
    """In order of their offsets."""

    __slots__ = ("core",)

    def __init__(self, core: "Records") -> None:
        self.core = core

    def __len__(self) -> int:
        return len(self.core)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self.core))
            return RawRecords(self.core.slice(begin, end)) if step == 1 else list(self)[index]
        return RawRecord._make(self.core[range(len(self.core))[index]])

    def __iter__(self) -> Iterator[Record]:
        core = self.core
        return (RawRecord._make(core[number]) for number in range(len(core)))


def parse(
    data: bytes,
    begin: int,
    aborted: Sequence[tuple[int, int]],
    decompress: Decompress,
    *,
    committed: bool = True,
) -> tuple[RawRecords, int] | None:
    """Committed records of a fetch, and where the next one begins.

    Args:
        data: Record batches as the broker sent them.
        begin: Nothing below is wanted.
        aborted: Producer and first offset of each aborted transaction, in order of the offsets.
        decompress: Codec and bytes → the bytes; None = somebody else is to say what is wrong with them.
        committed: False: what was aborted, and what is not decided, is wanted too.

    Returns:
        None = it is for aiokafka to read: there is no core, or something in it is unusual.
    """
    if native.core is None:
        return None
    try:
        found = native.core.parse(data, begin, list(aborted), committed, decompress)
    except Exception:
        log.exception("the native core failed: this fetch is read in Python; internal error, please report")
        return None
    return None if found is None else (RawRecords(found[0]), found[1])


def joined(first: Sequence[Record], later: Sequence[Record]) -> Sequence[Record]:
    """Both, in that order."""
    if isinstance(first, RawRecords) and isinstance(later, RawRecords):
        return RawRecords(first.core.joined(later.core))
    return [*first, *later]


def since(records: Sequence[Record], offset: int) -> Sequence[Record]:
    """Those from an offset on."""
    if isinstance(records, RawRecords):
        return RawRecords(records.core.since(offset))
    return [each for each in records if each.offset >= offset]


def plain(records: Sequence[Record]) -> Any:
    """What the core goes over; None = it cannot."""
    return records.core if isinstance(records, RawRecords) and native.core is not None else None
