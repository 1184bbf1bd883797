"""Chunks in a lane's RocksDB: ring records that follow one another, under one key: ``c`` capacity:u32 last sequence:u64.

A chunk is written once and removed when nothing in it is alive. Python writes ring records with keys of their own: the higher sequence
counts.
"""

import struct
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from tables import codec
from tables.codec import Chunk, Slot

PREFIX: Final = b"c"
END: Final = b"d"
"""Behind all their keys, and before any other's."""
REMOVED_MAX: Final = 1_000
"""With one transaction: where a ring was made smaller, many die at once, and others on the loop would wait."""
_KEY: Final = struct.Struct(">cIQ")


def key_of(capacity: int, last: int) -> bytes:
    """Return the key of the chunk that ends with this sequence. The first key from here on belongs to the chunk which holds it."""
    return _KEY.pack(PREFIX, capacity, last)


def capacity_of(key: bytes) -> int:
    """Return the ring's size, by a chunk's key."""
    return int(_KEY.unpack(key)[1])


def last_of(key: bytes) -> int:
    """Return the last sequence, by a chunk's key."""
    return int(_KEY.unpack(key)[2])


class ChunkKeys:
    """Which chunks there are, by sequence: to know what to remove without asking RocksDB for it."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = deque(sorted(keys, key=last_of))

    def __len__(self) -> int:
        return len(self._keys)

    def all(self) -> list[bytes]:
        """Return the keys, the oldest first."""
        return list(self._keys)

    def add(self, key: bytes) -> None:
        """Add the newest key."""
        self._keys.append(key)

    def dead(self, low: int) -> list[bytes]:
        """Those that hold nothing from ``low`` on, the oldest first: no more than one transaction removes."""
        found: list[bytes] = []
        while self._keys and len(found) < REMOVED_MAX and last_of(self._keys[0]) < low:
            found.append(self._keys.popleft())
        return found


def entries(key: bytes, value: bytes) -> Iterable[tuple[bytes, bytes]]:
    """Return a chunk's ring records, key and value.

    Raises:
        FormatError: damaged, or of a later version.
    """
    return Chunk(capacity_of(key), value)


def find(iterator: Any, capacity: int, sequences: Iterable[int]) -> dict[int, Slot]:
    """Slots of these sequences, as far as they are in chunks; ``iterator`` is RocksDB's.

    Raises:
        FormatError: a chunk is damaged.
    """
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
