"""Records and states of acknowledged messages that no committed transaction has yet."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ringfence_client.sends.outgoing_record import OutgoingRecord

FULL_BYTES: Final = 8 * 2**20
"""With so much nothing more of the partition is begun before a write."""
HURRY_BYTES: Final = 2**20
"""With so much a write does not wait for its interval."""
STATE_BYTES: Final = 100
"""Overhead of a state, beside its group and its value."""
_MISSING: Final[Any] = object()


class Outbox:
    """The outbox of one held partition.

    The writer takes everything at the moment of its snapshot of the progress. A transaction has the sends of a message exactly if it calls
    the message finished.
    """

    def __init__(self) -> None:
        self.records: list[OutgoingRecord] = []
        """Acknowledged since the last snapshot."""
        self.states: dict[bytes, bytes | None] = {}
        """The same: the last state of each group; None = it is deleted."""
        self.taken_records: list[OutgoingRecord] = []
        """By the last snapshot, whose transaction is not known to be committed."""
        self.taken_states: dict[bytes, bytes | None] = {}
        self.bytes = 0
        """Bytes of all records."""
        self._taken_bytes = 0
        """Bytes of the records that were taken."""

    @property
    def full(self) -> bool:
        """Whether nothing more of the partition is to be begun."""
        return self.bytes >= FULL_BYTES

    @property
    def hurried(self) -> bool:
        """Whether a write is not to wait."""
        return self.bytes >= HURRY_BYTES

    def add_records(self, records: Iterable[OutgoingRecord]) -> None:
        """Add what an acknowledged message sends."""
        for record in records:
            self.records.append(record)
            self.bytes += record.bytes

    def set_state(self, group: bytes, state: bytes | None) -> None:
        """Set what an acknowledged message leaves as the state of its group."""
        before = self.states.get(group, _MISSING)
        if before is _MISSING:
            self.bytes += STATE_BYTES + len(group)
        else:
            self.bytes -= len(before or b"")
        self.states[group] = state
        self.bytes += len(state or b"")

    def take(self) -> tuple[list[OutgoingRecord], Mapping[bytes, bytes | None]]:
        """Return everything that is not known to be committed. :meth:`commit` follows, or another call that returns it again."""
        self.taken_records += self.records
        self.taken_states |= self.states
        self.records, self.states = [], {}
        self._taken_bytes = self.bytes
        return self.taken_records, self.taken_states

    def commit(self) -> Mapping[bytes, bytes | None]:
        """Note that what was taken is committed; returns its states."""
        states = self.taken_states
        self.taken_records, self.taken_states = [], {}
        self.bytes -= self._taken_bytes
        self._taken_bytes = 0
        return states

    def drop(self) -> None:
        """Forget everything: its messages come again, here or elsewhere."""
        self.take()
        self.commit()
