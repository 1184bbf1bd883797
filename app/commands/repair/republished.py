"""What a quarantined record becomes, and the record batches that it is published in."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from app.commands.repair.refused_record import Header, Refused
from ringfence_kafka.producer.transactional import Builder, Outgoing


class Published(NamedTuple):
    """What a quarantined record becomes."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


class _Read(NamedTuple):
    """A record as rules are read from it."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    offset: int
    timestamp: int


def as_read(refused: Refused) -> Any:
    """As a lane reads it."""
    return _Read(refused.key, refused.value, refused.headers, refused.place.offset, refused.timestamp)


def as_read_again(published: Published, offset: int, timestamp: int) -> Any:
    """As a lane will read it, once it stands in the input at this offset."""
    return _Read(published.key, published.value, published.headers, offset, timestamp)


class Batches:
    """Record batches of one topic, a partition's in order."""

    def __init__(self, topic: str, new: Callable[[], Builder]) -> None:
        self._topic = topic
        self._new = new
        self._open: dict[int, Builder] = {}
        self._full: list[Outgoing] = []

    def add(self, published: Published) -> None:
        """To the open batch of its partition, or a new one."""
        builder = self._open.get(published.partition)
        if builder is not None and _append(builder, published):
            return
        if builder is not None:
            self._full.append(Outgoing(self._topic, published.partition, builder))
        self._open[published.partition] = alone(self._new(), published)

    def finish(self) -> list[Outgoing]:
        """All of them."""
        return [
            *self._full,
            *(Outgoing(self._topic, partition, item) for partition, item in self._open.items()),
        ]


def alone(builder: Builder, published: Published) -> Builder:
    """The batch, empty until now, with this one."""
    _append(builder, published)
    return builder


def _append(builder: Builder, published: Published) -> bool:
    """Whether it had room. Without a time: that of now, as retention deletes what is old."""
    return (
        builder.append(timestamp=None, key=published.key, value=published.value, headers=published.headers)
        is not None
    )
