"""Restore of a ring by the native core: records go from the log into index and chunks without an object for each.

Sequences must follow one another. Otherwise :class:`IrregularError` makes Python, the reference, repeat the restore.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import native
from ringfence_kafka.concurrency.cooperative import Steps
from tables import codec
from tables.codec import Chunk, Meta
from tables.ring import STEP
from tables.rocksdb import chunks

if TYPE_CHECKING:
    from native._core import Ids, Records
    from tables.rocksdb.store import Store, Writes

CHUNK_RECORDS: Final = 1_000
"""Approximate number of records in a chunk. A search for one record skips the earlier ones."""


class IrregularError(Exception):
    """The records are not in the order of their sequences, or incomplete."""


class UnorderedError(IrregularError):
    """A sequence is not above the last one, as after a growth or a deleted changelog."""


def dead_below(meta: Meta, capacity: int) -> int:
    """Return the sequence below which all IDs are dead, by this meta record and each later one."""
    return max(meta.floor, meta.head - meta.capacity, meta.head - capacity, 0)


def _single(values: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Return ring records in the form of chunks, with empty keys."""
    return ((b"", codec.chunk_part(value)) for value in values)


def _first_sequence(entry: tuple[bytes, bytes]) -> int:
    return codec.sequence_of(entry[1][2:11])


class NativeRestore:
    """Restore of the table of one lane by the native core."""

    def __init__(self, capacity: int, store: "Store", known: Meta | None, *, timed: bool = False) -> None:
        """Prepare a restore. ``known``: meta record of the store; ``timed``: timestamps are kept, for a promise."""
        assert native.core is not None  # noqa: S101 - the caller has checked
        self.ids: Ids = native.core.Ids(capacity, dead_below(known, capacity) if known else 0, timed)
        self.pending = 0
        self._store = store
        self._known = known
        self._loaded = -1
        """Last sequence from the store. Records of the log up to it are ignored."""
        self._parts: list[bytes] = []
        """Records of the unfinished chunk."""
        self._capacity = self._last = self._count = 0
        """Capacity in the keys of that chunk, its last sequence, and its number of records."""
        self._full: list[tuple[bytes, Chunk]] = []

    def load(self) -> Steps[None]:
        """Load the content of the store. Raise IrregularError if it does not form one ring."""
        if self._known is None:
            return
        capacity, low = self._known.capacity, self.ids.low
        older: list[bytes] = []
        for number, value in enumerate(self._store.slot_values_beside(capacity), 1):
            if codec.sequence_of(value) >= low:
                older.append(value)
            if not number % STEP:
                yield
        older.sort(key=codec.sequence_of)
        slots = self._store.slot_values(capacity, low % capacity) if capacity else (b"" for _ in ())
        chunk_streams = self._store.chunks_rising()
        merged = heapq.merge(_single(older), _single(slots), *chunk_streams, key=_first_sequence)
        try:
            yield from self._load_rising(merged)
        finally:
            for stream in (slots, *chunk_streams):
                stream.close()  # an error keeps the iteration open, and with it RocksDB
        self._loaded = self.ids.last

    def _load_rising(self, entries: Iterable[tuple[bytes, bytes]]) -> Steps[None]:
        """Load chunks and single slots in the order of their sequences. The key of a slot is empty."""
        keys: list[bytes] = []
        parts: list[bytes] = []
        for key, encoded in entries:
            parts.append(encoded)
            if key:
                keys.append(key)
            if key or len(parts) == STEP:
                self._load(b"".join(parts))
                parts = []
                yield
        self._load(b"".join(parts))
        self._store.set_chunk_keys(keys)

    def _load(self, encoded: bytes) -> None:
        try:
            read = self.ids.load(encoded)
        except ValueError as error:
            raise IrregularError(f"the records in RocksDB do not form one ring: {error}") from error
        if not read:
            raise IrregularError("the ring in RocksDB cannot be read")

    def apply_records(self, records: "Records", begin: int, most: int) -> int:
        """Take regular ring records from ``begin`` on; return the index of the next record."""
        end, count, capacity, encoded = self.ids.gather(records, begin, most, self._loaded)
        if count:
            self._note(capacity, count, encoded)
        return end

    def take_one(self, key: bytes, value: bytes) -> None:
        """Take a ring record that Python has read. Raise UnorderedError if its sequence is not above the last one."""
        slot = codec.decode_ring(key, value)
        if slot.sequence <= self._loaded:
            return
        if slot.sequence <= self.ids.last or not slot.capacity or key != codec.ring_key(*slot[:2]):
            raise UnorderedError(f"sequence {slot.sequence} comes behind {self.ids.last}, or in another slot")
        encoded = codec.chunk_part(value)
        try:
            self.ids.load(encoded)
        except ValueError as error:
            raise IrregularError(str(error)) from error
        self._note(slot.capacity, 1, encoded)

    def _note(self, capacity: int, count: int, encoded: bytes) -> None:
        """Add records that end with the last sequence to the unfinished chunk."""
        if self._parts and (self._capacity, self._last) != (capacity, self.ids.last - count):
            self._close()
        self._parts.append(encoded)
        self._capacity, self._last = capacity, self.ids.last
        self._count += count
        self.pending += count
        if self._count >= CHUNK_RECORDS:
            self._close()

    def _close(self) -> None:
        chunk = Chunk(self._capacity, b"".join(self._parts))
        self._full.append((chunks.key_of(self._capacity, self._last), chunk))
        self._parts, self._count = [], 0

    def fill(self, writes: "Writes", meta: Meta | None) -> None:
        """Write the pending records, and delete dead chunks."""
        if self._parts:
            self._close()
        known = self._store.chunk_keys()
        for key, chunk in self._full:
            writes.put_chunk(key, chunk)
            known.append(key)
        self._full, self.pending = [], 0
        for key in known.dead(dead_below(meta, meta.capacity)) if meta else ():
            writes.delete_chunk(key)

    def require_whole(self, low: int, head: int) -> None:
        """Raise IrregularError unless exactly the sequences of the ring are present."""
        if not self.ids.settle(low, head):
            raise IrregularError(f"not all sequences from {low} to before {head} are there, and no others")
