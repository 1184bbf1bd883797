"""Memory that the partitions of one process may use together. Pure.

Half of it is divided equally: a partition has so much, whatever the others do. Each may have as much more as is left of the other half. A
lone partition may use three quarters of the memory. Many partitions that are read one after the other leave room for the last one.
"""

from typing import Any, Final, Protocol

from ringfence_kafka.aiokafka_patches.batch_parts import HEADER_BYTES

FETCHING_PART: Final = 4
"""This part of the memory is for what was fetched and not taken yet; the rest for what is kept."""
RESPONSE_PART: Final = 16
"""An answer of a broker has no more than this part of it: while it is read it is there twice."""
RESPONSE_BYTES_MAX: Final = 50 * 2**20
"""As aiokafka has it, however much there is."""
PARTITION_BYTES_MAX: Final = 2**20
"""The same, of a partition in an answer; but one batch of records comes in any case."""
PARTITION_BYTES_MIN: Final = 2**16

RECORD_BYTES: Final = 200
"""Overhead of a kept record, beside the lengths of its parts and the cost of each message."""
MESSAGE_BYTES: Final = 450
"""Cost of each unfinished message, kept or not: ledger, watermark, offsets."""
WAITING_BYTES: Final = 1_200
"""Cost of the turn that keeps the group of a message that waits for its next attempt, or for an operator."""
GROUP_BYTES: Final = 1_100
"""Cost of each group that has a message. All measured, with CPython 3.11."""


class Partition(Protocol):
    """Partition that uses memory."""

    @property
    def bytes(self) -> int:
        """Bytes that the partition uses."""


class MemoryBudget:
    """Memory budget of one process."""

    def __init__(self, bytes_max: int) -> None:
        """``bytes_max``: of everything, about."""
        self.bytes_max = bytes_max
        self.response_bytes_max = min(RESPONSE_BYTES_MAX, bytes_max // RESPONSE_PART)
        self.fetched = 0
        """Bytes that were fetched and not taken."""
        self._kept_max = bytes_max - bytes_max // FETCHING_PART
        self._partitions: set[Partition] = set()
        self._own = self._kept_max // 2
        """Bytes that each partition has for itself."""
        self._more = 0
        """Bytes that all partitions together use beyond that."""

    def note_fetched(self, count: int) -> None:
        """Bytes that were fetched and not taken yet."""
        self.fetched = count

    def join(self, *partitions: Partition) -> None:
        """Let these share it too."""
        self._partitions.update(partitions)
        self._divide()

    def leave(self, *partitions: Partition) -> None:
        """Note that these use nothing any more."""
        self._partitions.difference_update(partitions)
        self._divide()

    def use(self, before: int, after: int) -> None:
        """Note that a partition used ``before`` bytes and now uses ``after``."""
        own = self._own
        if before > own or after > own:  # called for each message
            self._more += max(0, after - own) - max(0, before - own)

    def limit(self, used: int) -> int:
        """Return how much a partition that uses so much may use."""
        left = self._kept_max // 2 - self._more
        if used > self._own:
            left += used - self._own
        return self._own + left // 2 if left > 0 else self._own

    @property
    def used(self) -> int:
        """Bytes of what is kept."""
        return sum(partition.bytes for partition in self._partitions)

    @property
    def buffered(self) -> int:
        """Bytes of what is kept, or was fetched and not taken."""
        return self.used + self.fetched

    @property
    def partition_bytes_max(self) -> int:
        """Bytes of one partition in an answer of a broker: no more than it may keep in any case, if that is enough for a batch or two."""
        return min(PARTITION_BYTES_MAX, self.response_bytes_max, max(PARTITION_BYTES_MIN, self._own))

    @property
    def crowded(self) -> bool:
        """Whether so much was fetched and not taken that another answer may be too much."""
        return self.fetched + 2 * self.response_bytes_max > self.bytes_max // FETCHING_PART

    def _divide(self) -> None:
        self._own = self._kept_max // 2 // max(1, len(self._partitions))
        self._more = sum(max(0, partition.bytes - self._own) for partition in self._partitions)


def size(record: Any) -> int:
    """Return the bytes that a kept record of aiokafka costs."""
    parts = RECORD_BYTES + len(record.value or b"") + len(record.key or b"")
    for name, value in record.headers:
        parts += HEADER_BYTES + len(name) + len(value or b"")
    return parts
