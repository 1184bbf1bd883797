"""The index in RocksDB, for rings too large to keep their IDs in memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tables.codec import Slot
from tables.promise import leaving
from tables.ring import Checked
from tables.rocksdb.store import Store
from tables.rocksdb.writes import Writes

_LOOKED_UP_AT_ONCE: Final = 50
"""IDs whose ages are read from RocksDB at once: few leave with one batch."""


class StoredIndex:
    """ID → sequence, looked up with one multi-get a batch; written in the store's own WriteBatch.

    An entry goes when the slot of its sequence is overwritten, found by reading the slot's occupant. Entries that
    compaction or an earlier capacity left behind are dead by their sequence and cost space only.
    """

    def __init__(
        self, store: Store, capacity: int, find: Callable[[Sequence[int]], list[Slot | None]]
    ) -> None:
        """``find`` looks up live sequences in the slots, those of earlier capacities included."""
        self._store = store
        self._capacity = capacity
        self._find = find

    def lookup(self, ids: Sequence[bytes]) -> list[int | None]:
        """Return the latest sequence known for each ID."""
        return self._store.sequences(ids)

    def time(self, id_: bytes, sequence: int) -> int:
        """Record timestamp of a live sequence."""
        return self._times([sequence])[0]

    def leaving(self, low: int, gone: int, until: int, before: int) -> tuple[int, int]:
        """Return the younger IDs that leave, and the first that stays; see :func:`tables.promise.leaving`."""
        return leaving(self._times, low, gone, until, before, _LOOKED_UP_AT_ONCE)

    def _times(self, sequences: Sequence[int]) -> list[int]:
        return [0 if slot is None else slot.origin.timestamp for slot in self._find(sequences)]

    def add(self, checked: Checked, low: int) -> None:
        """Nothing to do: :meth:`persist` has written it."""

    def persist(
        self, writes: Writes, first_sequence: int, ids: Sequence[bytes], live_from: int | None
    ) -> None:
        """Add the new entries that outlive the batch, and remove those of the occupants that they overwrite.

        ``live_from``: no ID from that sequence on was accepted again before these; None = any may have been.
        """
        for occupant in self._overwritten(first_sequence, len(ids), live_from):
            writes.delete_index(occupant)
        # If there are more than the ring has room for, nobody would remove the first ones: they are in no slot.
        over = max(0, len(ids) - self._capacity)
        for sequence, id_ in enumerate(ids[over:], first_sequence + over):
            writes.put_index(id_, sequence)

    def _overwritten(self, first_sequence: int, count: int, live_from: int | None) -> Iterator[bytes]:
        if not count:
            return
        doubtful: list[Slot] = []
        for occupant in self._store.slots_of_run(self._capacity, first_sequence, count):
            # One that is accepted again in this batch is put after this.
            if live_from is not None and occupant.sequence >= live_from:
                yield occupant.id
            else:
                doubtful.append(occupant)
        indexed = self._store.sequences([item.id for item in doubtful])
        for occupant, sequence in zip(doubtful, indexed, strict=True):
            # Known under a newer sequence: the ID was evicted and accepted again. Keep that entry.
            if sequence == occupant.sequence:
                yield occupant.id
