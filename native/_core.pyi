from collections import deque
from collections.abc import Callable
from typing import TypeAlias, final

_Batch: TypeAlias = tuple[int, bytearray, int, int, int]
_Item: TypeAlias = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

@final
class Records:
    def __len__(self) -> int: ...
    def __getitem__(self, number: int) -> _Item: ...
    def slice(self, begin: int, end: int, /) -> Records: ...
    def since(self, offset: int, /) -> Records: ...
    def joined(self, later: Records, /) -> Records: ...
    def offset(self, number: int, /) -> int: ...
    def fitting(self, fixed: int, copies: int, bytes_max: int, most: int, /) -> tuple[int, int, int]: ...
    def size(self) -> int: ...

def parse(
    data: bytes,
    begin: int,
    start: int,
    aborted: list[tuple[int, int]],
    committed: bool,
    decompress: Callable[[int, bytes], bytes | None],
    records_max: int,
    bytes_max: int,
    /,
) -> tuple[Records, int, bool] | None: ...
def plan(
    records: Records,
    rules: tuple[object, ...],
    sequences: dict[bytes, int],
    capacity: int,
    head: int,
    floor: int,
    spread: int,
    now: int,
    /,
) -> tuple[bytes, list[bytes], list[_Batch], list[_Batch], bytes, int] | None: ...
def seal(
    batch: bytearray,
    count: int,
    first_timestamp: int,
    max_timestamp: int,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    /,
) -> None: ...
def note(
    sequences: dict[bytes, int],
    order: deque[bytes | None],
    first_sequence: int,
    ids: list[bytes],
    low: int,
    new_low: int,
    /,
) -> None: ...
def crc32c(data: bytes, by_table: bool, /) -> int: ...

INTERFACE: int
