"""Uncommitted records and states of acknowledged messages."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ringfence_client.handlers.effects import Headers
from ringfence_kafka.producer.transactional import Builder, NewBuilder, Outgoing

RECORD_BYTES: Final = 100
"""Upper bound of a batch's overhead beside key, value and headers of its record, in bytes."""
FULL_BYTES: Final = 8 * 2**20
"""Size, in bytes, from which the partition starts no message before a write."""
HURRY_BYTES: Final = 2**20
"""Size, in bytes, from which a write does not wait for its interval."""
STATE_BYTES: Final = 100
"""Overhead of a state beside its group and value, in bytes."""
_MISSING: Final[Any] = object()


class OutgoingRecord(NamedTuple):
    """A record and its target partition."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    bytes: int
    """Approximate size as a batch of its own."""
    batch_bytes_max: int
    """Size limit of one record batch of the topic, in bytes."""

    def append_to(self, builder: Builder) -> bool:
        """Append the record, and return whether the batch had room."""
        return (
            builder.append(timestamp=self.timestamp, key=self.key, value=self.value, headers=self.headers)
            is not None
        )


class Outbox:
    """Outbox of one held partition.

    The writer takes the whole content together with its snapshot of the progress. A transaction contains the sends of a message exactly if
    it counts the message as finished.
    """

    def __init__(self) -> None:
        self.records: list[OutgoingRecord] = []
        """Records acknowledged since the last snapshot."""
        self.states: dict[bytes, bytes | None] = {}
        """Last state of each group since the last snapshot; None = deleted."""
        self.taken_records: list[OutgoingRecord] = []
        """Records of the last snapshot, whose transaction is not known to be committed."""
        self.taken_states: dict[bytes, bytes | None] = {}
        self.bytes = 0
        self._taken_bytes = 0

    @property
    def full(self) -> bool:
        """Whether the partition must not start a message before a write."""
        return self.bytes >= FULL_BYTES

    @property
    def hurried(self) -> bool:
        """Whether a write should not wait."""
        return self.bytes >= HURRY_BYTES

    def add_records(self, records: Iterable[OutgoingRecord]) -> None:
        """Add the records of an acknowledged message."""
        for record in records:
            self.records.append(record)
            self.bytes += record.bytes

    def set_state(self, group: bytes, state: bytes | None) -> None:
        """Set the state of a group after an acknowledged message."""
        before = self.states.get(group, _MISSING)
        if before is _MISSING:
            self.bytes += STATE_BYTES + len(group)
        else:
            self.bytes -= len(before or b"")
        self.states[group] = state
        self.bytes += len(state or b"")

    def uncommitted(self) -> tuple[list[OutgoingRecord], Mapping[bytes, bytes | None]]:
        """Return everything that is not known to be committed. :meth:`commit` follows, or another call that returns it again."""
        self.taken_records += self.records
        self.taken_states |= self.states
        self.records, self.states = [], {}
        self._taken_bytes = self.bytes
        return self.taken_records, self.taken_states

    def commit(self) -> Mapping[bytes, bytes | None]:
        """Record that the taken content is committed; return its states."""
        states = self.taken_states
        self.taken_records, self.taken_states = [], {}
        self.bytes -= self._taken_bytes
        self._taken_bytes = 0
        return states

    def drop(self) -> None:
        """Drop everything. The messages are handled again, here or elsewhere."""
        self.uncommitted()
        self.commit()


def batches_of(records: Iterable[OutgoingRecord], new: NewBuilder) -> list[Outgoing]:
    """Return as few record batches as possible. The records of each partition stay in order."""
    filled: dict[tuple[str, int], Outgoing] = {}
    found: list[Outgoing] = []
    for record in records:
        place = record.topic, record.partition
        batch = filled.get(place)
        if (
            batch is None
            or batch.builder.size() + record.bytes > record.batch_bytes_max
            or not record.append_to(batch.builder)
        ):
            batch = filled[place] = Outgoing(*place, new())
            found.append(batch)
            record.append_to(batch.builder)
    return found
