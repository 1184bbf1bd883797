"""Changes of a ring's capacity, decided when a lane opens.

Slots of an earlier capacity keep their own keys until all of them are dead. Then each transaction removes a few.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from ringfence_kafka.concurrency.cooperative import Steps
from tables import codec
from tables.change import TableOptions
from tables.codec import Meta
from tables.native_index import NativeIndex, rebuilding_index
from tables.promise import Promise
from tables.restore import Restore
from tables.ring import STEP, Checked, Index, Ring

TOMBSTONES_MAX: Final = 1_000
"""Limit of tombstones in one transaction."""


def making_ring(options: TableOptions, restore: Restore, index: Index | None = None) -> Steps[Ring]:
    """Return the ring of the changelog at the configured capacity.

    A change of capacity moves the floor. A smaller ring keeps the newest N IDs, and IDs that it evicted stay evicted when the ring grows
    again. A ring that is in memory only, or was, has no earlier IDs.
    Raises IrregularError if the native core has not collected all sequences.
    """
    meta, promise, head, floor = restore.meta, options.promise, 0, 0
    if meta is not None:
        promise = promise and resumed(promise, meta)
        head, floor = meta.head, floor_of(meta, options)
    ring = Ring(options.capacity, head, floor, index, options.max_age_ms, promise)
    if index is not None:
        return ring
    if restore.gathering is not None and meta is not None:
        restore.gathering.require_whole(ring.low, ring.head)
        ring.index = NativeIndex(restore.gathering.ids)
    else:
        entries = codec.ring_entries(restore.occupants.values())
        ring.index = yield from rebuilding_index(entries, ring.low, ring.head, options)
    return ring


def resumed(promise: Promise, meta: Meta) -> Promise:
    """Return a configured promise with the outcome of the lane's last transaction."""
    before = meta.promise
    return promise if before is None else promise._replace(newest_ms=before.newest_ms, broken=before.broken)


def floor_of(meta: Meta, options: TableOptions) -> int:
    """Return the floor of a ring that opens with these options: lower sequences are dead.

    A smaller ring with a promise keeps its floor. Its oldest ID then lies above the floor, which shows that younger IDs had to leave.
    """
    capacity, promised = options.capacity, options.promise is not None
    if not (options.persistent and meta.persistent):
        return meta.head
    if capacity > meta.capacity or (capacity < meta.capacity and not promised):
        return max(meta.floor, meta.head - min(capacity, meta.capacity))
    return meta.floor


def following_ring(ring: Ring, known: Meta, restore: Restore) -> Steps[bool]:
    """Bring a ring in memory up to date with the changelog records after ``known``, and return whether that was possible.

    It is if size and floor are unchanged, and each newer ID is present. A promise may raise the floor. Otherwise the ring is unchanged.
    """
    meta = restore.meta
    if (
        meta is None
        or restore.cleared
        or (meta.capacity, meta.persistent) != (known.capacity, known.persistent)
        or (meta.floor < known.floor if ring.promise and meta.promise else meta.floor != known.floor)
        or (ring.capacity, ring.head, ring.floor) != (known.capacity, known.head, known.floor)
    ):
        return False
    newer: dict[int, Sequence[Any]] = {}
    slots = iter(restore.occupants.items())
    while some := list(islice(slots, STEP)):
        values = (value for key, value in some if codec.capacity_of(key) == ring.capacity)
        newer.update((sequence, entry) for sequence, *entry in codec.ring_entries(values))
        yield
    if len(newer) != meta.head - ring.head or not all(map(newer.__contains__, range(ring.head, meta.head))):
        return False
    for begin in range(ring.head, meta.head, STEP):
        entries = [newer[sequence] for sequence in range(begin, min(begin + STEP, meta.head))]
        ids, times, digests = (list(column) for column in zip(*entries, strict=True))
        ring.apply(Checked([], [], ring.head, ids, times, new_digests=digests))
        yield
    if ring.promise is not None:
        promise = resumed(ring.promise, meta)
        ring.apply(Checked([], [], ring.head, [], []), (max(ring.floor, meta.floor), promise))
    return True


def older_capacities(capacity: int, meta: Meta | None) -> list[list[int]]:
    """Return earlier capacities with remaining slots, newest first; see :attr:`tables.codec.Meta.older`.

    A capacity that returns needs no removal: new slots overwrite its old ones.
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
