"""Hash with which Kafka's clients choose the partition of a key."""

from functools import lru_cache
from typing import Final

from aiokafka.partitioner import murmur2

HASHES_KEPT: Final = 100_000
"""Number of cached hashes of recent keys: the hash is computed in Python, byte by byte."""


@lru_cache(HASHES_KEPT)
def key_hash(key: bytes) -> int:
    """Return the hash of a key. Modulo the partition count it is the partition, as in Kafka's partitioner."""
    return int(murmur2(key) & 0x7FFFFFFF)
