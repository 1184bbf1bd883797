"""Interfaces of a record: the fields that Ringfence reads. Pure."""

from collections.abc import Sequence
from typing import Protocol


class RecordContent(Protocol):
    """Source of IDs and groups: a record, or a part of a transaction."""

    @property
    def key(self) -> bytes | None:
        """Record key."""

    @property
    def value(self) -> bytes | None:
        """Record value."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Headers in order, including repeated names."""


class Record(RecordContent, Protocol):
    """Fields of a consumed record that lanes read. aiokafka's ConsumerRecord has them."""

    @property
    def offset(self) -> int:
        """Offset in the input partition."""

    @property
    def timestamp(self) -> int:
        """Timestamp in milliseconds since the epoch."""
