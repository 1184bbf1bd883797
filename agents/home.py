"""Which partition a group belongs to. Pure.

``murmur2`` is what the Java client's default partitioner and aiokafka use for records with a key.
"""

from typing import Final

MEMO_MAX: Final = 100_000
"""Keys remembered at most; about 10 MiB. Past it the memory starts anew."""

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


class Home(dict[bytes, int]):
    """Partition of a key, memoised: ``home[key]``. Groups repeat, so the hash is rarely computed."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self._partitions = partitions

    def __missing__(self, key: bytes) -> int:
        if len(self) >= MEMO_MAX:
            self.clear()
        # toPositive of the Java client: the sign bit is cleared before the modulo.
        partition = self[key] = (murmur2(key) & 0x7FFFFFFF) % self._partitions
        return partition
