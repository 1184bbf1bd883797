"""Unconfirmed records of a bridge in cycles, and the confirmed offset of each partition. Pure.

Everything below the confirmed offset is acknowledged by the target, filtered, or in quarantine. Only acknowledgements advance it; hops
depend on that.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from ringfence_kafka.errors import require

CYCLES_MAX: Final = 2
"""Maximum number of unconfirmed cycles: the next one is built while one waits for acknowledgements."""
RECORDS_MAX: Final = 5_000
"""Maximum number of records from one partition in a cycle."""
CYCLE_RECORDS_MAX: Final = 10_000
"""Maximum number of records in a cycle. Each target partition takes one batch per round trip, so the size of a cycle limits batch sizes."""


@dataclass(eq=False, slots=True)
class Place:
    """One source partition, from its opening until it is revoked or its topic is created again."""

    partition: int
    topic_id: str
    confirmed: int
    next: int
    sent: int = 0
    """End of the part that was read before a failure, or by the former holder: the target may have these records."""

    @property
    def reached(self) -> int:
        """End of the offsets that the target may have."""
        return max(self.next, self.sent)


@dataclass(eq=False, slots=True)
class Cycle:
    """Records that were read together."""

    ends: dict[Place, int]
    """End of the cycle's part of each partition."""
    records: Mapping[Place, int] = field(default_factory=dict)
    """Number of records to the target, by partition."""
    pending: int = 0
    """Number of unacknowledged batches."""
    bytes: int = 0
    """Size of the batches, in bytes."""
    began: float = 0.0
    """Monotonic time at which they were handed to the producer, in seconds."""


def in_turn(partitions: Collection[int], last: int) -> list[int]:
    """Order partitions by their turn: those after ``last``, the partition that was read last, are first."""
    return sorted(partitions, key=lambda each: (each <= last, each))


class Window:
    """All partitions of one bridge in this process."""

    def __init__(self, limit: int, cycles_max: int = CYCLES_MAX) -> None:
        """Create the window. ``limit``: unconfirmed offsets of a partition; ``cycles_max``: unconfirmed cycles."""
        self.places: dict[int, Place] = {}
        self._limit = limit
        self._cycles_max = cycles_max
        self._cycles: deque[Cycle] = deque()
        self.take: Final = max(1, min(RECORDS_MAX, limit // cycles_max))
        """Maximum number of records from a partition in a cycle, which keeps its unconfirmed records within the limit."""

    def open(self, partition: int, topic_id: str, offset: int, sent: int = 0) -> None:
        """Start forwarding a partition at ``offset``. ``sent``: end of the offsets that former holders may have sent."""
        self.places[partition] = Place(partition, topic_id, offset, offset, sent)

    def close(self, partitions: Collection[int]) -> None:
        """Stop forwarding these partitions. Their unconfirmed records confirm nothing."""
        for partition in partitions:
            self.places.pop(partition, None)

    @property
    def busy(self) -> bool:
        """Whether a cycle is unconfirmed."""
        return bool(self._cycles)

    @property
    def full(self) -> bool:
        """Whether the number of unconfirmed cycles is at its limit."""
        return len(self._cycles) >= self._cycles_max

    def wanted(self) -> dict[int, int]:
        """Return the read position of each partition with room for :attr:`take` records."""
        return {
            number: place.next
            for number, place in self.places.items()
            if self._limit - (place.next - place.confirmed) >= self.take
        }

    def start_cycle(self, reached: Mapping[int, int]) -> Cycle:
        """Start a cycle with the records up to these offsets. The caller counts its batches in :attr:`Cycle.pending`."""
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

    def confirm(self) -> list[Cycle]:
        """Confirm and return the acknowledged cycles, oldest first."""
        done = []
        while self._cycles and not self._cycles[0].pending:
            cycle = self._cycles.popleft()
            for place, end in cycle.ends.items():
                place.confirmed = max(place.confirmed, end)
            done.append(cycle)
        return done

    def reset(self) -> dict[Place, int]:
        """Discard all unconfirmed cycles. Their records are read again from the confirmed offsets. Return their number by partition."""
        lost: dict[Place, int] = {}
        for cycle in self._cycles:
            for place, count in cycle.records.items():
                lost[place] = lost.get(place, 0) + count
        self._cycles.clear()
        for place in self.places.values():
            place.sent = place.reached
            place.next = place.confirmed
        return lost
