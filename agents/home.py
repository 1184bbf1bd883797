"""Which partition a group belongs to. Pure.

``murmur2`` is what the Java client's default partitioner and aiokafka use for records with a key; ``crc32`` is what
librdkafka's default uses. Both give an empty key a partition; librdkafka's spreads empty keys at random, so under
``crc32`` such records are brought to partition 0.
"""

import weakref
import zlib
from collections.abc import Callable
from typing import ClassVar, Final

MEMO_BYTES_MAX: Final = 64 * 2**20
"""What all that live remember, about; each has the same part. Past that it starts anew."""
MEMO_BYTES_MIN: Final = 32 * 2**10
"""Of one, however many there are."""
KEY_BYTES: Final = 120
"""What a key takes beyond its bytes."""

_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C


def murmur2(data: bytes) -> int:
    """The 32-bit hash of ``org.apache.kafka.common.utils.Utils.murmur2``, as an unsigned number."""
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


def crc32(data: bytes) -> int:
    """The hash of librdkafka's default partitioner, ``consistent_random``."""
    return zlib.crc32(data)


_HASHES: Final[dict[str, Callable[[bytes], int]]] = {
    # toPositive of the Java client: the sign bit is cleared before the modulo.
    "murmur2": lambda key: murmur2(key) & 0x7FFFFFFF,
    "crc32": crc32,
}


class Home(dict[bytes, int]):
    """Partition of a key, memoised: ``home[key]``. Groups repeat, so the hash is rarely computed."""

    _living: ClassVar["weakref.WeakValueDictionary[int, Home]"] = weakref.WeakValueDictionary()

    def __init__(self, partitions: int, partitioner: str = "murmur2") -> None:
        """``partitioner`` as in the configuration: ``murmur2`` or ``crc32``."""
        super().__init__()
        self._partitions = partitions
        self._hash = _HASHES[partitioner]
        self._bytes = 0
        self._living[id(self)] = self

    def __missing__(self, key: bytes) -> int:
        self._bytes += len(key) + KEY_BYTES
        if self._bytes > max(MEMO_BYTES_MIN, MEMO_BYTES_MAX // len(self._living)):
            self.clear()
            self._bytes = len(key) + KEY_BYTES
        partition = self[key] = self._hash(key) % self._partitions
        return partition
