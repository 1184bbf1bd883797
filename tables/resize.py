"""Changes of a ring's capacity, decided when a lane opens.

Slots of an earlier capacity stay under keys of their own until nothing in them is alive. Then each transaction removes a few.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final

from ringfence_kafka.concurrency.cooperative import Steps
from tables import codec
from tables.codec import Meta
from tables.native_index import NativeIndex, empty_index, rebuilding_index
from tables.restore import Restore
from tables.ring import STEP, Checked, Index, Ring

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
    """Return the ring of the changelog, at the configured capacity.

    A change of capacity moves the floor: shrinking keeps the newest N, and what was evicted under the smaller size
    stays evicted when the ring grows again. A ring that is in memory only, or was, knows nothing from before.

    Raises:
        IrregularError: the core has not gathered all of it.
    """
    meta, aged = restore.meta, max_age_ms > 0
    if meta is None:
        known = empty_index(0, capacity, aged=aged) if index is None else index
        return Ring(capacity, index=known, max_age_ms=max_age_ms)
    ring = Ring(capacity, meta.head, floor_of(meta, capacity, persistent=persistent), index, max_age_ms)
    if index is not None:
        return ring
    if restore.gathering is not None:
        restore.gathering.require_whole(ring.low, ring.head)
        ring.index = NativeIndex(restore.gathering.ids)
    else:
        entries = codec.ring_entries(restore.occupants.values())
        ring.index = yield from rebuilding_index(entries, ring.low, ring.head, capacity, aged=aged)
    return ring


def floor_of(meta: Meta, capacity: int, *, persistent: bool) -> int:
    """Return the floor of a ring that opens with this capacity: sequences below it are dead."""
    if not (persistent and meta.persistent):
        return meta.head
    if capacity != meta.capacity:
        return max(meta.floor, meta.head - min(capacity, meta.capacity))
    return meta.floor


def following_ring(ring: Ring, known: Meta, restore: Restore) -> Steps[bool]:
    """Bring a ring in memory up to date with the changelog, by the records behind ``known``.

    Returns:
        Whether that was possible: size and floor are as before, and each newer ID is still there. Else nothing is changed.
    """
    meta = restore.meta
    if (
        meta is None
        or restore.cleared
        or (meta.capacity, meta.floor, meta.persistent) != (known.capacity, known.floor, known.persistent)
        or (ring.capacity, ring.head, ring.floor) != (known.capacity, known.head, known.floor)
    ):
        return False
    newer: dict[int, tuple[bytes, int]] = {}
    slots = iter(restore.occupants.items())
    while some := list(islice(slots, STEP)):
        values = (value for key, value in some if codec.capacity_of(key) == ring.capacity)
        newer.update((sequence, (data, time)) for sequence, data, time in codec.ring_entries(values))
        yield
    if len(newer) != meta.head - ring.head or not all(map(newer.__contains__, range(ring.head, meta.head))):
        return False
    for begin in range(ring.head, meta.head, STEP):
        entries = [newer[sequence] for sequence in range(begin, min(begin + STEP, meta.head))]
        ids, times = [data for data, _ in entries], [time for _, time in entries]
        ring.apply(Checked([], [], ring.head, ids, times))
        yield
    return True


def older_capacities(capacity: int, meta: Meta | None) -> list[list[int]]:
    """Earlier capacities whose slots may still be there, newest first; see :attr:`tables.codec.Meta.older`.

    A capacity that comes back needs no removal: its old slots are overwritten as its new ones come.
    """
    if meta is None:
        return []
    older = [list(item) for item in meta.older if item[0] != capacity]
    if meta.capacity not in (capacity, 0):
        older.insert(0, [meta.capacity, meta.head, 0])
    return older


def collect_garbage(older: Sequence[Sequence[int]], low: int) -> tuple[list[list[int]], list[bytes]]:
    """Return the older capacities that remain after this transaction, and the ring keys that it removes."""
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
