"""The index in RocksDB, for rings too large to keep their IDs in memory."""

from collections.abc import Callable, Sequence

from tables import codec
from tables.codec import Slot
from tables.store import Store, Writes


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
        """The latest sequence known for each ID."""
        return self._store.sequences(ids)

    def times(self, sequences: Sequence[int]) -> list[int]:
        """Record timestamps of live sequences."""
        return [0 if slot is None else slot.origin.timestamp for slot in self._find(sequences)]

    def add(self, first_sequence: int, ids: Sequence[bytes], times: Sequence[int], low: int) -> None:
        """Nothing to do: :meth:`persist` has written it."""

    def persist(self, writes: Writes, first_sequence: int, ids: Sequence[bytes]) -> None:
        """Add the new entries and remove those of the occupants that they overwrite."""
        sequences = range(first_sequence, first_sequence + len(ids))
        keys = [codec.ring_key(self._capacity, each) for each in sequences]
        occupants = [each for each in self._store.slots_of(keys) if each is not None]
        indexed = self._store.sequences([each.id for each in occupants])
        for occupant, sequence in zip(occupants, indexed, strict=True):
            # Known under a newer sequence: the ID was evicted and accepted again. Keep that entry.
            if sequence == occupant.sequence:
                writes.delete_index(occupant.id)
        for sequence, each in zip(sequences, ids, strict=True):
            writes.put_index(each, sequence)
