"""What is read of a record. Pure."""

from collections.abc import Sequence
from typing import Protocol


class RecordContent(Protocol):
    """What IDs and groups are read of: a record, or a part of a transaction."""

    @property
    def key(self) -> bytes | None:
        """Record key."""
        ...

    @property
    def value(self) -> bytes | None:
        """Record value."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Headers in order, repeats included."""
        ...


class Record(RecordContent, Protocol):
    """What the path reads of a consumed record (aiokafka's ConsumerRecord has it)."""

    @property
    def offset(self) -> int:
        """Offset in the input partition."""
        ...

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch."""
        ...
