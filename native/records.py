"""Records of a fetch that the core has parsed. Each becomes an object when it is accessed, and most never are."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

if TYPE_CHECKING:
    from native._core import Records


class RawRecord(NamedTuple):
    """A record. The order of the fields is the core's."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class RawRecords(Sequence[RawRecord]):
    """Records of one fetch, ordered by offset."""

    __slots__ = ("core",)

    def __init__(self, core: "Records") -> None:
        self.core = core

    def __len__(self) -> int:
        return len(self.core)

    @overload
    def __getitem__(self, index: int) -> RawRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RawRecord]: ...
    def __getitem__(self, index: int | slice) -> RawRecord | Sequence[RawRecord]:
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self.core))
            return RawRecords(self.core.slice(begin, end)) if step == 1 else list(self)[index]
        return RawRecord._make(self.core[range(len(self.core))[index]])

    def __iter__(self) -> Iterator[RawRecord]:
        core = self.core
        return (RawRecord._make(core[number]) for number in range(len(core)))
