"""Memory of a lane's table: ring, hop memory, newest meta record and changelog position."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from ringfence_kafka.concurrency.cooperative import Steps
from tables import codec
from tables.change import Change
from tables.codec import Meta, Slot
from tables.hops import HopMemory
from tables.index import StoredIndex
from tables.resize import following_ring, older_capacities
from tables.restore import Restore
from tables.ring import Ring


@dataclass(slots=True, kw_only=True)
class LaneMemory:
    """Memory of a lane, as last committed."""

    ring: Ring
    hops: HopMemory
    meta: Meta | None = None
    """None before the lane's first transaction."""
    position: int = 0
    """Changelog offset after the last record that ring and store reflect."""
    incarnation: str = ""
    older: list[list[int]] = field(default_factory=list)
    """Earlier capacities; see :attr:`tables.codec.Meta.older`."""
    stored_index: StoredIndex | None = None
    volatile: dict[int, Slot] = field(default_factory=dict)
    """Slots by sequence, if nothing is persisted."""

    @classmethod
    def empty(cls, capacity: int) -> Self:
        """Return the memory of a lane that was never open."""
        return cls(ring=Ring(capacity), hops=HopMemory(capacity))

    def following(self, restore: Restore) -> Steps[bool]:
        """Apply newer records of the changelog; return whether that was possible."""
        if self.meta is None:
            return False
        if not (yield from following_ring(self.ring, self.meta, restore)):
            return False
        self.hops.follow(restore.hops.items())
        self.meta, self.position = restore.meta, restore.position
        self.older = older_capacities(self.ring.capacity, self.meta)
        return True

    def commit(self, change: Change, position: int) -> None:
        """Apply a committed change."""
        self.ring.apply(change.checked, (change.meta.floor, change.meta.promise))
        self.hops.apply(change.judged)
        self.meta, self.position, self.older = change.meta, position, change.meta.older

    def remember(self, slots: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep slots that are not persisted."""
        for key, value in slots:
            slot = codec.decode_ring(key, value)
            self.volatile[slot.sequence] = slot
            self.volatile.pop(slot.sequence - self.ring.capacity, None)
