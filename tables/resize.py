"""Changes of a ring's capacity, decided when a lane opens.

Slots of an earlier capacity stay where they are, under keys of their own, until nothing in them is alive; then they
are removed from changelog and RocksDB, a few with each transaction. What is alive is decided by sequences alone, so
none of this is needed for right verdicts: it keeps the changelog bounded.
"""

from collections.abc import Sequence
from typing import Final

from ringfence_kafka.slices import Steps
from tables import codec
from tables.codec import Meta
from tables.restore import Restore
from tables.ring import Index, ResidentIndex, Ring

TOMBSTONES_MAX: Final = 1_000
"""With one transaction."""


def making_ring(
    capacity: int,
    restore: Restore,
    index: Index | None = None,
    *,
    max_age_ms: int = 0,
    persistent: bool = True,
) -> Steps[Ring]:
    """The ring as the changelog tells it, at the configured capacity.

    A change of capacity moves the floor: shrinking keeps the newest N, and what was evicted under the smaller size
    stays evicted when the ring grows again. A ring that is in memory only, or was, knows nothing from before.
    """
    meta = restore.meta
    if meta is None:
        return Ring(capacity, index=index, max_age_ms=max_age_ms)
    floor = meta.floor
    if not (persistent and meta.persistent):
        floor = meta.head
    elif capacity != meta.capacity:
        floor = max(floor, meta.head - min(capacity, meta.capacity))
    ring = Ring(capacity, meta.head, floor, index, max_age_ms)
    if index is None:
        entries = codec.ring_entries(restore.occupants.values())
        ring.index = yield from ResidentIndex.rebuilding(
            entries, ring.low, ring.head, capacity if max_age_ms else 0
        )
    return ring


def older_capacities(capacity: int, meta: Meta | None) -> list[list[int]]:
    """Earlier capacities whose slots may still be there, newest first; see :attr:`tables.codec.Meta.older`.

    A capacity that comes back needs no removal: its old slots are overwritten as its new ones come.
    """
    if meta is None:
        return []
    older = [list(each) for each in meta.older if each[0] != capacity]
    if meta.capacity not in (capacity, 0):
        older.insert(0, [meta.capacity, meta.head, 0])
    return older


def collect_garbage(older: Sequence[Sequence[int]], low: int) -> tuple[list[list[int]], list[bytes]]:
    """What is left of the older capacities after this transaction, and the ring keys that it removes."""
    remaining: list[list[int]] = []
    removed: list[bytes] = []
    for capacity, until, cleared in older:
        if low < until:
            remaining.append([capacity, until, cleared])
            continue
        stop = min(capacity, cleared + TOMBSTONES_MAX - len(removed))
        removed += [codec.ring_key(capacity, slot) for slot in range(cleared, stop)]
        if stop < capacity:
            remaining.append([capacity, until, stop])
    return remaining, removed
