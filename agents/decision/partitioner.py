"""Partition of a group: ``murmur2`` as in the Java client and aiokafka, ``crc32`` as in librdkafka. Pure.

librdkafka spreads empty keys at random; with ``crc32`` Ringfence forwards such records to partition 0.
"""

import weakref
import zlib
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeVar

from ringfence_kafka.protocol.lane_layout import LaneLayout

_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
MEMO_BYTES_MAX: Final = 64 * 2**20
"""Approximate bytes of all live caches together, with equal shares. A cache that exceeds its share is cleared."""
MEMO_BYTES_MIN: Final = 32 * 2**10
"""Minimum share of one cache, in bytes."""
KEY_BYTES: Final = 120
"""Memory overhead of a key, in bytes."""

Found = TypeVar("Found")


class GroupCache(dict[bytes, Found]):
    """Cache with ``cache[key]``, limited in bytes for the whole process: producers choose key lengths. Values are few and shared."""

    _living: ClassVar["weakref.WeakValueDictionary[int, GroupCache[Any]]"] = weakref.WeakValueDictionary()

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0
        self._living[id(self)] = self

    def find(self, key: bytes) -> Found:
        """Compute the value of a key that is not cached."""
        raise NotImplementedError

    def __missing__(self, key: bytes) -> Found:
        self._bytes += len(key) + KEY_BYTES
        if self._bytes > max(MEMO_BYTES_MIN, MEMO_BYTES_MAX // len(self._living)):
            self.clear()
            self._bytes = len(key) + KEY_BYTES
        found = self[key] = self.find(key)
        return found


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of ``org.apache.kafka.common.utils.Utils.murmur2``, as an unsigned number."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length != whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


_HASHES: Final[dict[str, Callable[[bytes], int]]] = {
    # toPositive of the Java client: the sign bit is cleared before the modulo.
    "murmur2": lambda key: murmur2(key) & 0x7FFFFFFF,
    "crc32": zlib.crc32,  # librdkafka's default partitioner, consistent_random
}


class Partitioner(GroupCache[int]):
    """Partition of a key, memoised: ``home[key]``. Groups repeat, so the hash is rarely computed."""

    def __init__(self, partitions: int, partitioner: str = "murmur2") -> None:
        """``partitioner`` as in the configuration: ``murmur2`` or ``crc32``."""
        super().__init__()
        self._partitions = partitions
        self._hash = _HASHES[partitioner]

    def find(self, key: bytes) -> int:
        """Return the partition by the hash."""
        return self._hash(key) % self._partitions


class HomeLanes(Partitioner):
    """Home lane of a group or an ID, memoised: the lane that owns the partition of the key."""

    def __init__(self, layout: LaneLayout, partitioner: str = "murmur2") -> None:
        """``partitioner`` as in the configuration: ``murmur2`` or ``crc32``."""
        super().__init__(layout.partitions, partitioner)
        self._layout = layout

    def find(self, key: bytes) -> int:
        """Return the lane by the hash."""
        return self._layout.lane_of(super().find(key))
