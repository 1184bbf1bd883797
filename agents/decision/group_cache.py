"""Cache of values that are computed from groups, because groups repeat. Pure."""

import weakref
from typing import Any, ClassVar, Final, TypeVar

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
