"""Records of a lane in RocksDB: slots, hops, chunks, and for very large rings the index.

The WriteBatch after each commit contains the changelog position too, so RocksDB is always a prefix of the changelog. Keys: ``m`` →
:class:`StoredState`; ``s`` capacity:u32 slot:u32 → ring value; ``i`` id → sequence:u64; ``h`` arrived:u32 source → hops value.
"""

import itertools
import json
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rocksdict import WriteBatch

from ringfence_kafka.concurrency.cooperative import Steps
from tables import codec
from tables.codec import Chunk, FormatError, Meta, Slot
from tables.rocksdb import chunks
from tables.rocksdb.chunks import ChunkKeys
from tables.rocksdb.errors import StaleEpochError
from tables.rocksdb.folder import RocksFolder

STATE_KEY: Final = b"m"
SLOT_PREFIX: Final = b"s"
INDEX_PREFIX: Final = b"i"
HOPS_PREFIX: Final = b"h"
SEQUENCE: Final = struct.Struct(">Q")
_POSITION: Final = "position"
_POSITION_CHUNKED: Final = "chunked_position"
"""Name of the position in a store with chunks."""
_epochs: Final = itertools.count(1)
_FOUND_AT_ONCE: Final = 8
"""Number of chunks per step. Their values are read with their keys."""


class Writes:
    """Collects the puts and deletes of one :meth:`Store.write`."""

    def __init__(self, batch: WriteBatch) -> None:
        self._batch = batch

    def put_slots(self, slots: Iterable[tuple[bytes, bytes]]) -> None:
        """Put ring records, key and value as in the changelog."""
        put = self._batch.put
        for ring_key, ring_value in slots:
            put(SLOT_PREFIX + ring_key[1:], ring_value)

    def put_chunk(self, key: bytes, chunk: Chunk) -> None:
        """Put a chunk of consecutive ring records."""
        self._batch.put(key, chunk.encoded)

    def delete_chunk(self, key: bytes) -> None:
        """Delete a dead chunk."""
        self._batch.delete(key)

    def delete_slot(self, ring_key: bytes) -> None:
        """Delete a ring record whose changelog key got a tombstone."""
        self._batch.delete(SLOT_PREFIX + ring_key[1:])

    def put_hops(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Put hops records, key and value as in the changelog."""
        for key, value in records:
            self._batch.put(HOPS_PREFIX + key[1:], value)

    def delete_hops(self, key: bytes) -> None:
        """Delete a hops record whose changelog key got a tombstone."""
        self._batch.delete(HOPS_PREFIX + key[1:])

    def put_index(self, encoded_id: bytes, sequence: int) -> None:
        """Put an index entry."""
        self._batch.put(INDEX_PREFIX + encoded_id, SEQUENCE.pack(sequence))

    def delete_index(self, encoded_id: bytes) -> None:
        """Delete an index entry."""
        self._batch.delete(INDEX_PREFIX + encoded_id)


class StoredState(NamedTuple):
    """State record of a lane's RocksDB."""

    meta: Meta
    position: int
    """Changelog offset after the last record in this store."""
    written_at: float
    """Seconds since the epoch."""
    indexed: bool
    """Whether this store has a complete index ID → sequence."""


class Store(RocksFolder):
    """The records of one lane. Readers raise FormatError if a record was written by a later version, or is damaged."""

    def __init__(
        self, path: Path, *, read_only: bool = False, indexed: bool = False, in_memory: bool = False
    ) -> None:
        """Open or create the store; see :class:`RocksFolder`."""
        super().__init__(path, read_only=read_only, indexed=indexed, in_memory=in_memory)
        self.epoch = 0
        self._chunk_keys: ChunkKeys | None = None
        """None = not read yet."""

    def begin_epoch(self) -> int:
        """Start a new opening of the lane. Writes of all earlier openings are refused from now on.

        Epochs are unique in the process, so a recreated store does not reuse one.
        """
        self.epoch = next(_epochs)
        return self.epoch

    def state(self) -> StoredState | None:
        """Return the state that the store reflects; None = empty."""
        raw = self._many([STATE_KEY])[0]
        if raw is None:
            return None
        try:
            outer = json.loads(raw)
            return StoredState(
                codec.decode_meta(outer["meta"].encode()),
                outer[_POSITION_CHUNKED if _POSITION_CHUNKED in outer else _POSITION],
                outer["written_at"],
                outer["indexed"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"{self.path}: state record is damaged: {error}") from error

    @property
    def unfinished(self) -> bool:
        """Whether the store has records without a state: a build from an unknown changelog did not finish."""
        if self.state() is not None:
            return False
        iterator = self._db.iter()
        try:
            iterator.seek_to_first()
            return iterator.key() is not None
        finally:
            del iterator

    def slots(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all slots of all capacities as ring key and value, unordered, live or dead. The highest sequence of a key counts.

        They are checked and not decoded: a lane with a million slots waits for this when it opens.
        """
        for key, value in self._entries(SLOT_PREFIX):
            ring_key = codec.KIND_RING + key
            codec.check_ring(ring_key, value)
            yield ring_key, value
        for key, value in self._entries(chunks.PREFIX):
            yield from Chunk(chunks.capacity_of(chunks.PREFIX + key), value)

    def slot_values(self, capacity: int, first: int) -> Generator[bytes, None, None]:
        """Yield the values of one capacity's single slots, from a slot on and around the ring."""
        ring_key = codec.ring_key(capacity, first)
        prefix, turn = SLOT_PREFIX + ring_key[1:5], ring_key[5:]
        for _, value in self._entries(prefix, turn):
            codec.check_ring(ring_key, value)
            yield value
        for key, value in self._entries(prefix):
            if key >= turn:
                return
            codec.check_ring(ring_key, value)
            yield value

    def slot_values_beside(self, capacity: int) -> Iterator[bytes]:
        """Yield the slot values of all other capacities, unordered."""
        own, behind = (number.to_bytes(4, "big") for number in (capacity, min(capacity + 1, 2**32 - 1)))
        for first in (b"", behind):
            for key, value in self._entries(SLOT_PREFIX, first):
                if key[:4] == own or (key > own and not first):
                    break
                codec.check_ring(codec.KIND_RING + key, value)
                yield value

    def chunks_rising(self) -> list[Generator[tuple[bytes, bytes], None, None]]:
        """Return the chunks of each capacity, key and value, each in the order of their sequences."""
        capacities = []
        iterator = self._db.iter()
        try:
            iterator.seek(chunks.PREFIX)
            while (key := iterator.key()) is not None and key.startswith(chunks.PREFIX):
                capacities.append(chunks.capacity_of(key))
                iterator.seek(chunks.key_of(capacities[-1], chunks.SEQUENCE_MAX))
        finally:
            del iterator
        return [self._chunks(chunks.key_of(capacity, 0)[:5]) for capacity in capacities]

    def _chunks(self, prefix: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        for key, value in self._entries(prefix):
            yield prefix + key, value

    def set_chunk_keys(self, keys: Iterable[bytes]) -> None:
        """Set the keys of all chunks, which a reader of them has found."""
        self._chunk_keys = ChunkKeys(keys)

    def chunk_slots(self, capacity: int, sequences: Iterable[int]) -> dict[int, Slot]:
        """Return the slots of these sequences that are in chunks."""
        iterator = self._db.iter()
        try:
            return chunks.find(iterator, capacity, sequences)
        finally:
            del iterator

    def finding_chunks(self) -> Steps[None]:
        """Read the keys of all chunks in steps, before the first call of :meth:`chunk_keys`."""
        if self._chunk_keys is not None:
            return
        found: list[bytes] = []
        for number, (key, _) in enumerate(self._chunks(chunks.PREFIX), 1):
            found.append(key)
            if not number % _FOUND_AT_ONCE:
                yield
        self._chunk_keys = ChunkKeys(found)

    def chunk_keys(self) -> ChunkKeys:
        """Return the keys of all chunks, read from RocksDB once."""
        if self._chunk_keys is None:
            self._chunk_keys = ChunkKeys(key for key, _ in self._chunks(chunks.PREFIX))
        return self._chunk_keys

    def hops(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the hops records, key and value as in the changelog, unordered."""
        for key, value in self._entries(HOPS_PREFIX):
            codec.check_hops(codec.KIND_HOPS + key, value)
            yield codec.KIND_HOPS + key, value

    def slots_of(self, ring_keys: Sequence[bytes]) -> list[Slot | None]:
        """Return the occupants of these slots; None = empty."""
        if not ring_keys:
            return []
        values = self._many([SLOT_PREFIX + key[1:] for key in ring_keys])
        return [
            None if value is None else codec.decode_ring(key, value)
            for key, value in zip(ring_keys, values, strict=True)
        ]

    def slots_of_run(self, capacity: int, first_sequence: int, count: int) -> list[Slot]:
        """Return the occupants of the slots of consecutive sequences, at most one round of the ring."""
        begin = first_sequence % capacity
        runs = [(begin, min(begin + count, capacity))]
        if begin + count > capacity:
            runs.append((0, min(begin + count - capacity, begin)))
        found = []
        for first, end in runs:
            key = codec.ring_key(capacity, first)
            stop = end.to_bytes(5, "big")
            for slot, value in self._entries(SLOT_PREFIX + key[1:5], key[5:]):
                if b"\0" + slot >= stop:
                    break
                found.append(codec.decode_ring(key[:5] + slot, value))
        return found

    def sequences(self, ids: Sequence[bytes]) -> list[int | None]:
        """Return index entries; None = not found."""
        if not ids:
            return []
        return [
            None if raw is None else int(SEQUENCE.unpack(raw)[0])
            for raw in self._many([INDEX_PREFIX + id_ for id_ in ids])
        ]

    def write(self, epoch: int, state: StoredState | None, fill: Callable[[Writes], None]) -> None:
        """Write slots, index entries and their state, all or nothing.

        A write without a state starts a build: see :attr:`unfinished`.

        Raises:
            StaleEpochError: The lane has been opened again since ``epoch``.
            StateFolderError: The folder cannot be written (any more).
            DamagedStoreError: Files are missing or damaged.
        """
        if epoch != self.epoch:
            raise StaleEpochError(f"write of opening {epoch}, the lane is at opening {self.epoch}")
        batch = WriteBatch(raw_mode=True)
        fill(Writes(batch))
        if state is not None:
            outer = {
                "meta": codec.encode_meta(state.meta).decode(),
                _POSITION_CHUNKED if self.chunk_keys() else _POSITION: state.position,
                "written_at": state.written_at,
                "indexed": state.indexed,
            }
            batch.put(STATE_KEY, json.dumps(outer).encode())
        try:
            self._db.write(batch)
        except Exception as error:  # rocksdict raises plain Exception for every fault of RocksDB
            self.broken = True
            raise self._noted(error) from error
