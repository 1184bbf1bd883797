"""Index in RocksDB, for rings with too many IDs for memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tables.codec import Slot
from tables.promise import leaving
from tables.ring import Checked
from tables.rocksdb.store import Store, Writes

_LOOKED_UP_AT_ONCE: Final = 50
"""Number of IDs whose ages are read at once. Few leave with one batch."""


class StoredIndex:
    """Sequence by ID in RocksDB. Each batch uses one multi-get, and writes within the store's own WriteBatch.

    The entry of an overwritten slot's occupant is deleted. Entries that compaction or an earlier capacity left behind are dead by their
    sequence, and cost only space.
    """

    def __init__(
        self, store: Store, capacity: int, find: Callable[[Sequence[int]], list[Slot | None]]
    ) -> None:
        """Create an index. ``find`` looks up live sequences in the slots, including those of earlier capacities."""
        self._store = store
        self._capacity = capacity
        self._find = find

    def lookup(self, ids: Sequence[bytes]) -> list[int | None]:
        """Return the latest known sequence of each ID."""
        return self._store.sequences(ids)

    def time(self, id_: bytes, sequence: int) -> int:
        """Return the record timestamp of a live sequence, in milliseconds."""
        return self._times([sequence])[0]

    def leaving(self, low: int, gone: int, until: int, before: int) -> tuple[int, int]:
        """Return the number of younger IDs that leave, and the first that stays; see :func:`tables.promise.leaving`."""
        return leaving(self._times, low, gone, until, before, _LOOKED_UP_AT_ONCE)

    def _times(self, sequences: Sequence[int]) -> list[int]:
        return [0 if slot is None else slot.origin.timestamp for slot in self._find(sequences)]

    def add(self, checked: Checked, low: int) -> None:
        """Do nothing: :meth:`persist` has written the IDs."""

    def persist(
        self, writes: Writes, first_sequence: int, ids: Sequence[bytes], live_from: int | None
    ) -> None:
        """Write the new entries that outlive the batch, and delete those of the overwritten occupants.

        ``live_from``: no ID at or after this sequence was accepted again before these; None = any may have been.
        """
        for occupant in self._overwritten(first_sequence, len(ids), live_from):
            writes.delete_index(occupant)
        # If the batch exceeds the ring, its first IDs have no slots, and their entries would never be deleted.
        over = max(0, len(ids) - self._capacity)
        for sequence, id_ in enumerate(ids[over:], first_sequence + over):
            writes.put_index(id_, sequence)

    def _overwritten(self, first_sequence: int, count: int, live_from: int | None) -> Iterator[bytes]:
        if not count:
            return
        doubtful: list[Slot] = []
        for occupant in self._store.slots_of_run(self._capacity, first_sequence, count):
            # An ID that this batch accepts again is put after this deletion.
            if live_from is not None and occupant.sequence >= live_from:
                yield occupant.id
            else:
                doubtful.append(occupant)
        indexed = self._store.sequences([item.id for item in doubtful])
        for occupant, sequence in zip(doubtful, indexed, strict=True):
            # Otherwise the ID was evicted and accepted again: its newer entry stays.
            if sequence == occupant.sequence:
                yield occupant.id
