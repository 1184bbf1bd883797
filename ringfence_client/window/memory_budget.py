"""Memory that all partitions of one process share. Pure.

Half of the memory is divided equally: each partition always has this share. A partition may also use as much of the other half as is left
free after its use. A lone partition may therefore use three quarters of the memory. Many partitions that fill up one after the other leave
room for the last one.
"""

from typing import Any, Final, Protocol

from ringfence_kafka.aiokafka_patches.batch_parts import HEADER_BYTES

FETCHING_PART: Final = 4
"""1/n of the memory is for records that are fetched and not taken yet; the rest is for kept records."""
RESPONSE_PART: Final = 16
"""A broker's response has at most 1/n of the memory. While it is parsed, it is in memory twice."""
RESPONSE_BYTES_MAX: Final = 50 * 2**20
"""Limit of a response, in bytes, whatever the memory: the default of aiokafka."""
PARTITION_BYTES_MAX: Final = 2**20
"""Limit of one partition in a response, in bytes. A broker exceeds it to return at least one batch."""
PARTITION_BYTES_MIN: Final = 2**16

RECORD_BYTES: Final = 200
"""Overhead of a kept record, in bytes, beside the lengths of its parts and the cost of each message."""
MESSAGE_BYTES: Final = 450
"""Cost of each unfinished message, kept or not, in bytes: ledger, watermark, offsets."""
WAITING_BYTES: Final = 1_200
"""Cost, in bytes, of the turn that keeps the group of a message that waits for its next attempt or for an operator."""
GROUP_BYTES: Final = 1_100
"""Cost of each group with a message, in bytes. These four costs were measured with CPython 3.11."""


class Partition(Protocol):
    """Partition that uses memory."""

    @property
    def bytes(self) -> int:
        """Bytes that the partition uses."""


class MemoryBudget:
    """Memory budget of one process."""

    def __init__(self, bytes_max: int) -> None:
        """``bytes_max``: approximate limit of the whole process's messages, in bytes."""
        self.bytes_max = bytes_max
        self.response_bytes_max = min(RESPONSE_BYTES_MAX, bytes_max // RESPONSE_PART)
        self.fetched = 0
        self._kept_max = bytes_max - bytes_max // FETCHING_PART
        self._partitions: set[Partition] = set()
        self._own = self._kept_max // 2
        self._more = 0
        """Bytes that all partitions together use beyond their own shares."""

    def set_fetched(self, count: int) -> None:
        """Set the bytes of records that are fetched and not taken yet."""
        self.fetched = count

    def join(self, *partitions: Partition) -> None:
        """Add partitions that share the memory."""
        self._partitions.update(partitions)
        self._divide()

    def leave(self, *partitions: Partition) -> None:
        """Remove partitions, with all that they used."""
        self._partitions.difference_update(partitions)
        self._divide()

    def use(self, before: int, after: int) -> None:
        """Record that a partition used ``before`` bytes and now uses ``after``."""
        own = self._own
        if before > own or after > own:  # called for each message
            self._more += max(0, after - own) - max(0, before - own)

    def limit(self, used: int) -> int:
        """Return the limit of a partition that uses ``used`` bytes, in bytes."""
        left = self._kept_max // 2 - self._more
        if used > self._own:
            left += used - self._own
        return self._own + left // 2 if left > 0 else self._own

    @property
    def used(self) -> int:
        """Bytes of kept records."""
        return sum(partition.bytes for partition in self._partitions)

    @property
    def buffered(self) -> int:
        """Bytes of records that are kept, or fetched and not taken."""
        return self.used + self.fetched

    @property
    def partition_bytes_max(self) -> int:
        """Limit of one partition in a broker's response, in bytes: its own share, if that holds a batch or two."""
        return min(PARTITION_BYTES_MAX, self.response_bytes_max, max(PARTITION_BYTES_MIN, self._own))

    @property
    def crowded(self) -> bool:
        """Whether another response may exceed the memory for fetched records."""
        return self.fetched + 2 * self.response_bytes_max > self.bytes_max // FETCHING_PART

    def _divide(self) -> None:
        self._own = self._kept_max // 2 // max(1, len(self._partitions))
        self._more = sum(max(0, partition.bytes - self._own) for partition in self._partitions)


def size(record: Any) -> int:
    """Return the memory cost of a kept aiokafka record, in bytes."""
    parts = RECORD_BYTES + len(record.value or b"") + len(record.key or b"")
    for name, value in record.headers:
        parts += HEADER_BYTES + len(name) + len(value or b"")
    return parts
