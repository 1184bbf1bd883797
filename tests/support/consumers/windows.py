"""Input for a consumer's window, without a broker."""

from typing import NamedTuple


class Fetched(NamedTuple):
    """Fields of aiokafka's record that a window reads."""

    offset: int
    key: bytes | None = b"group"
    value: bytes | None = b"value"
    timestamp: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str = "orders.accepted"
    partition: int = 1


def of(group: bytes | None, *offsets: int) -> list[Fetched]:
    return [Fetched(offset, group) for offset in offsets]
