"""Records of a bridge that are under way, in cycles, and the confirmed offset of each partition. Pure.

Everything below it is acknowledged by the target, filtered, or in quarantine. It grows by acknowledgements alone: hops rely on that.
"""

import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from ringfence_kafka.errors import require

CYCLES_MAX: Final = 2
"""While one is acknowledged the next is built."""
RECORDS_MAX: Final = 5_000
"""Most records of one partition in one cycle."""
CYCLE_RECORDS_MAX: Final = 10_000
"""Most records of all partitions in one cycle. Each target partition takes one batch a round trip: the size of a cycle decides the size of
these batches."""


@dataclass(eq=False, slots=True)
class Place:
    """One source partition, from its opening until it is given away or another topic takes its name."""

    partition: int
    topic_id: str
    confirmed: int
    next: int
    """Up to where it was read."""
    sent: int = 0
    """Offset up to which it was read before a failure, or by its former holder: the target may have those records."""

    @property
    def reached(self) -> int:
        """Everything that the target may have got lies below."""
        return max(self.next, self.sent)


@dataclass(eq=False, slots=True)
class Cycle:
    """Records that were read at once."""

    ends: dict[Place, int]
    """Up to where, of each partition."""
    records: Mapping[Place, int] = field(default_factory=dict)
    """How many are sent."""
    pending: int = 0
    """Batches that are not acknowledged."""
    bytes: int = 0
    """Bytes of those batches, when they were handed over."""
    began: float = 0.0
    """When that was, by the monotonic clock."""

    def begun(self, count: int) -> None:
        """Note that ``count`` bytes are handed over now."""
        self.bytes, self.began = count, time.monotonic()


def in_turn(partitions: Collection[int], last: int) -> list[int]:
    """Order partitions by their turn: those behind ``last``, the partition read last, come first."""
    return sorted(partitions, key=lambda each: (each <= last, each))


class Window:
    """All partitions of one bridge in one process."""

    def __init__(self, limit: int, cycles_max: int = CYCLES_MAX) -> None:
        """``limit``: unconfirmed offsets of a partition; ``cycles_max``: cycles at once, 1 = each waits for the one before it."""
        self.places: dict[int, Place] = {}
        self._limit = limit
        self._cycles_max = cycles_max
        self._cycles: deque[Cycle] = deque()
        self.take: Final = max(1, min(RECORDS_MAX, limit // cycles_max))
        """Records of a partition in one cycle, at most: then its unconfirmed ones do not exceed the limit."""

    def open(self, partition: int, topic_id: str, offset: int, sent: int = 0) -> None:
        """Forward this partition from here on; others may have ``sent`` more, up to there."""
        self.places[partition] = Place(partition, topic_id, offset, offset, sent)

    def close(self, partitions: Collection[int]) -> None:
        """Forward nothing of these any more; what is under way of them confirms nothing."""
        for partition in partitions:
            self.places.pop(partition, None)

    @property
    def busy(self) -> bool:
        """Whether something is under way."""
        return bool(self._cycles)

    @property
    def full(self) -> bool:
        """Whether no cycle may begin now."""
        return len(self._cycles) >= self._cycles_max

    def wanted(self) -> dict[int, int]:
        """Partitions that a cycle may take :attr:`take` records of, and up to where they were read."""
        return {
            number: place.next
            for number, place in self.places.items()
            if self._limit - (place.next - place.confirmed) >= self.take
        }

    def begin(self, reached: Mapping[int, int]) -> Cycle:
        """Begin a cycle with the records read up to these offsets. The caller counts its batches in :attr:`Cycle.pending`."""
        ends = {}
        for number, offset in reached.items():
            place = self.places[number]
            require(offset >= place.next, "read backwards", number, offset, place.next)
            place.next = offset
            ends[place] = offset
        cycle = Cycle(ends)
        self._cycles.append(cycle)
        return cycle

    def cut(self, cycle: Cycle, place: Place, offset: int) -> None:
        """Limit a partition's part of a cycle to the records below an offset."""
        place.next = cycle.ends[place] = offset

    def settle(self) -> list[Cycle]:
        """Confirm what is acknowledged, oldest cycle first; returns those."""
        done = []
        while self._cycles and not self._cycles[0].pending:
            cycle = self._cycles.popleft()
            for place, end in cycle.ends.items():
                place.confirmed = max(place.confirmed, end)
            done.append(cycle)
        return done

    def reset(self) -> dict[Place, int]:
        """Forget what is under way: it is read again from what is confirmed.

        Returns:
            How many records of each partition are sent again.
        """
        lost: dict[Place, int] = {}
        for cycle in self._cycles:
            for place, count in cycle.records.items():
                lost[place] = lost.get(place, 0) + count
        self._cycles.clear()
        for place in self.places.values():
            place.sent = place.reached
            place.next = place.confirmed
        return lost
