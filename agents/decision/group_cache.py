"""Cache of values that are computed from groups, because groups repeat. Pure."""

import weakref
from typing import Any, ClassVar, Final, TypeVar

MEMO_BYTES_MAX: Final = 64 * 2**20
"""Approximate bytes of all live caches together; each has the same share. A cache beyond its share starts empty again."""
MEMO_BYTES_MIN: Final = 32 * 2**10
"""Least share of one cache in bytes, however many there are."""
KEY_BYTES: Final = 120
"""Bytes that a key takes beyond its own."""

Found = TypeVar("Found")


class GroupCache(dict[bytes, Found]):
    """``memo[key]``; bounded in bytes, for the process: keys are as long as producers like. Values are few, and shared."""

    _living: ClassVar["weakref.WeakValueDictionary[int, GroupCache[Any]]"] = weakref.WeakValueDictionary()

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0
        self._living[id(self)] = self

    def find(self, key: bytes) -> Found:
        """Compute the answer."""
        raise NotImplementedError

    def __missing__(self, key: bytes) -> Found:
        self._bytes += len(key) + KEY_BYTES
        if self._bytes > max(MEMO_BYTES_MIN, MEMO_BYTES_MAX // len(self._living)):
            self.clear()
            self._bytes = len(key) + KEY_BYTES
        found = self[key] = self.find(key)
        return found
