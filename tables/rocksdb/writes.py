"""Puts and deletes of one WriteBatch, by the keys of a lane's RocksDB."""

import struct
from collections.abc import Iterable
from typing import Final

from rocksdict import WriteBatch

from tables.codec import Chunk

STATE_KEY: Final = b"m"
SLOT_PREFIX: Final = b"s"
INDEX_PREFIX: Final = b"i"
HOPS_PREFIX: Final = b"h"
SEQUENCE: Final = struct.Struct(">Q")


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
