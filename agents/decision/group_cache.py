"""What is computed of a group, remembered: groups repeat. Pure."""

import weakref
from typing import Any, ClassVar, Final, TypeVar

MEMO_BYTES_MAX: Final = 64 * 2**20
"""What all that live remember, about; each has the same part. Past that it starts anew."""
MEMO_BYTES_MIN: Final = 32 * 2**10
"""Of one, however many there are."""
KEY_BYTES: Final = 120
"""What a key takes beyond its bytes."""

Found = TypeVar("Found")


class GroupCache(dict[bytes, Found]):
    """``memo[key]``; bounded in bytes, for the process: keys are as long as producers like. Values are few, and shared."""

    _living: ClassVar["weakref.WeakValueDictionary[int, GroupCache[Any]]"] = weakref.WeakValueDictionary()

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0
        self._living[id(self)] = self

    def find(self, key: bytes) -> Found:
        """Computes it."""
        raise NotImplementedError

    def __missing__(self, key: bytes) -> Found:
        self._bytes += len(key) + KEY_BYTES
        if self._bytes > max(MEMO_BYTES_MIN, MEMO_BYTES_MAX // len(self._living)):
            self.clear()
            self._bytes = len(key) + KEY_BYTES
        found = self[key] = self.find(key)
        return found
