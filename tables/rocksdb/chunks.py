"""Chunks in a lane's RocksDB: consecutive ring records under one key: ``c`` capacity:u32 last sequence:u64.

A chunk is written once, and deleted when all its records are dead. Python writes ring records with keys of their own; the higher sequence
counts.
"""

import struct
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from tables import codec
from tables.codec import Chunk, Slot

PREFIX: Final = b"c"
SEQUENCE_MAX: Final = 2**64 - 1
REMOVED_MAX: Final = 1_000
"""Limit of chunks that one transaction deletes. After a ring became smaller, many die at once, and would block the event loop."""
_KEY: Final = struct.Struct(">cIQ")


def key_of(capacity: int, last: int) -> bytes:
    """Return the key of the chunk that ends with this sequence. A seek to it finds the chunk that contains the sequence."""
    return _KEY.pack(PREFIX, capacity, last)


def capacity_of(key: bytes) -> int:
    """Return the ring size in a chunk's key."""
    return int(_KEY.unpack(key)[1])


def last_of(key: bytes) -> int:
    """Return the last sequence in a chunk's key."""
    return int(_KEY.unpack(key)[2])


class ChunkKeys:
    """Keys of all chunks by sequence, so that dead chunks are found without RocksDB."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = deque(sorted(keys, key=last_of))

    def __len__(self) -> int:
        return len(self._keys)

    def all(self) -> list[bytes]:
        """Return the keys, the oldest first."""
        return list(self._keys)

    def append(self, key: bytes) -> None:
        """Add the newest key."""
        self._keys.append(key)

    def dead(self, low: int) -> list[bytes]:
        """Remove and return keys of chunks below ``low``, the oldest first, up to the limit of one transaction."""
        found: list[bytes] = []
        while self._keys and len(found) < REMOVED_MAX and last_of(self._keys[0]) < low:
            found.append(self._keys.popleft())
        return found


def find(iterator: Any, capacity: int, sequences: Iterable[int]) -> dict[int, Slot]:
    """Return the slots of these sequences that are in chunks; ``iterator``: RocksDB's iterator. Raises FormatError for a damaged chunk."""
    found: dict[int, Slot] = {}
    wanted = sorted(sequences)
    for number, sequence in enumerate(wanted):
        if sequence in found:
            continue
        iterator.seek(key_of(capacity, sequence))
        key: bytes | None = iterator.key()
        if key is None or key[:1] != PREFIX or capacity_of(key) != capacity:
            break
        for value in Chunk(capacity, iterator.value()).of_sequences(wanted[number:]):
            slot = codec.decode_ring(codec.ring_key(capacity, codec.sequence_of(value)), value)
            found[slot.sequence] = slot
    return found
