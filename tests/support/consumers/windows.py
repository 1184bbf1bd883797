"""What a consumer's window is given, without a broker."""

from typing import NamedTuple


class Fetched(NamedTuple):
    """What of aiokafka's record a window looks at."""

    offset: int
    key: bytes | None = b"group"
    value: bytes | None = b"value"
    timestamp: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()


def of(group: bytes | None, *offsets: int) -> list[Fetched]:
    return [Fetched(offset, group) for offset in offsets]
