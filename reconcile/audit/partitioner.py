"""Partitioners of producers, and which of them a topic's records match. Pure."""

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

EXPLAINED_MIN: Final = 0.9
"""Share of keyed records that a partitioner must explain. Below it, producers use several, or another one."""

SEED: Final = 0x9747B28C
FACTOR: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF


class Placed(NamedTuple):
    """Number of records with one key in one partition."""

    key: bytes
    partition: int
    records: int


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit hash of Java clients."""
    found = SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * FACTOR & MASK
        found = (found * FACTOR & MASK) ^ ((word ^ (word >> 24)) * FACTOR & MASK)
    if len(data) != whole:
        found = (found ^ int.from_bytes(data[whole:], "little")) * FACTOR & MASK
    found = (found ^ (found >> 13)) * FACTOR & MASK
    return found ^ (found >> 15)


HASHES: Final[Mapping[str, Callable[[bytes], int]]] = {
    # Java clients clear the sign bit before the modulo operation
    "murmur2": lambda key: murmur2(key) & 0x7FFFFFFF,
    "crc32": zlib.crc32,
}


def explained(sample: Iterable[Placed], partitions: int) -> dict[str, float]:
    """Return partitioner → share of these records that it explains; empty = unknown.

    A single partition shows nothing. Empty keys are left out, because librdkafka spreads them over
    partitions.
    """
    keyed = [item for item in sample if item.key]
    total = sum(item.records for item in keyed)
    if not total or partitions == 1:
        return {}
    return {
        name: sum(item.records for item in keyed if HASHES[name](item.key) % partitions == item.partition)
        / total
        for name in HASHES
    }


def chosen(shares: Mapping[str, float], partitions: int, otherwise: str) -> str:
    """Return the partitioner that explains most records and clearly beats chance, else the configured one."""
    best = max(shares, key=lambda name: (shares[name], name == otherwise), default=otherwise)
    chance = 1 / partitions
    return best if shares and shares[best] - chance >= (1 - chance) / 2 else otherwise
