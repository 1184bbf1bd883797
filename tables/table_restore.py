"""Brings memory and RocksDB of a lane to the end of its changelog, from newer records or from the whole changelog."""

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import native
from ringfence_kafka.concurrency.cooperative import Steps, TimeSlices, emptying
from ringfence_kafka.process.failpoints import reach
from ringfence_kafka.readers.log_reader import LogReader
from tables import codec, native_changelog
from tables.change import Change, Restored, TableOptions
from tables.codec import FormatError, Meta, Slot
from tables.hops import HopMemory
from tables.index import StoredIndex
from tables.native_index import NativeIndex
from tables.native_restore import IrregularError, NativeRestore, UnorderedError
from tables.resize import following_ring, making_ring, older_capacities
from tables.restore import ChangelogBounds, Restore, require_own, trusted_start
from tables.ring import ResidentIndex, Ring
from tables.rocksdb.errors import DamagedStoreError, UntrustedError
from tables.rocksdb.lane_store import LaneStore
from tables.rocksdb.store import Store, StoredState

log: Final = logging.getLogger("ringfence.table")


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


class ChangelogPartition(NamedTuple):
    """The changelog partition of a lane, and its reader."""

    reader: LogReader
    topic: str
    number: int
    bounds: ChangelogBounds


class TableRestore:
    """Owner of the memory of a lane's table."""

    def __init__(
        self,
        options: TableOptions,
        store: LaneStore,
        slices: TimeSlices,
        find: Callable[[Sequence[int]], list[Slot | None]],
        *,
        resident: bool,
    ) -> None:
        """Prepare a restore. ``resident``: the index is in memory; otherwise it is in RocksDB, and ``find`` looks up slots."""
        self.memory = LaneMemory(ring=Ring(options.capacity), hops=HopMemory(options.capacity))
        self._options = options
        self._store = store
        self._slices = slices
        self._find = find
        self._resident = resident
        self._whole: Store | None = None
        """The open store that the memory agrees with; None = the memory may lack records of the store."""

    async def restore(self, changelog: ChangelogPartition) -> Restored:
        """Bring memory and store to the high watermark; see :meth:`tables.table.LaneTable.open`."""
        began, count, reused = time.monotonic(), 0, False
        in_python: bool | None = None
        """Whether Python rebuilds the table; None = no rebuild."""
        try:
            store = self._store.sound()
            state = store.state()
            reused = state is not None
            start = trusted_start(state, changelog.bounds, indexed=not self._resident)
            if self._in_memory(store, state):
                self._whole = None  # until it has caught up
                restore = await self._read(store, changelog, start, behind=True)
                if await self._slices.run(self.memory.following(restore)):
                    self._whole = store
                    return Restored(restore.count, time.monotonic() - began, reused=True, kept=True)
                count = restore.count - 1  # its last record is read once more
                start = trusted_start(store.state(), changelog.bounds, indexed=not self._resident)
            self._whole = None
            restore = await self._read(store, changelog, start)
            await self._take_over(store, restore)
        except (UntrustedError, FormatError, DamagedStoreError, IrregularError) as error:
            in_python = isinstance(error, IrregularError)
            self._log_rebuild(error)
        if in_python is not None:
            # Outside the handler: the error keeps RocksDB's iterator, and with it its lock.
            reused = False
            restore = await self._rebuild(changelog, in_python=in_python)
        self._whole = self._store.opened()
        return Restored(count + restore.count, time.monotonic() - began, reused)

    async def _rebuild(self, changelog: ChangelogPartition, *, in_python: bool) -> Restore:
        """Read the whole changelog into an empty RocksDB. ``in_python``: accept records in any order."""
        store = self._store.renew()
        try:
            restore = await self._read(store, changelog, changelog.bounds.start, in_python=in_python)
            await self._take_over(store, restore)
        except IrregularError as error:
            self._log_rebuild(error)
        else:
            return restore
        return await self._rebuild(changelog, in_python=True)

    def _log_rebuild(self, error: Exception) -> None:
        if isinstance(error, UnorderedError):
            log.info("%s is filled without the native core: %s", self._store.path, error)
        else:
            log.warning("%s is rebuilt from the changelog: %s", self._store.path, error)

    def _in_memory(self, store: Store, state: StoredState | None) -> bool:
        """Return whether memory has all content of RocksDB, so that only newer records of the changelog are read."""
        return (
            self._whole is store
            and self._resident
            and self._options.persistent
            and state is not None
            and (state.meta, state.position) == (self.memory.meta, self.memory.position)
        )

    async def _read(
        self,
        store: Store,
        changelog: ChangelogPartition,
        start: int,
        *,
        behind: bool = False,
        in_python: bool = False,
    ) -> Restore:
        high_watermark = changelog.bounds.high_watermark
        place = f"{changelog.topic}/{changelog.number}"

        def check(meta: Meta) -> None:
            require_own(meta, self._options.app, self._options.address, place)

        gathering = None if behind or in_python else self._native_restore(store)
        restore = Restore(
            store,
            store.begin_epoch(),
            resident=self._resident,
            check=check,
            behind=behind,
            gathering=gathering,
            start=start,
        )

        async def consume(records: Sequence[Any]) -> None:
            # A transaction ends at the high watermark. Later records may be part of one, if another worker has the lane.
            within = native_changelog.below(records, high_watermark)
            if within:
                await self._slices.run(restore.consuming(within))
            await reach("mid-restore", self._store.path.name)

        await self._slices.run(restore.load())
        take = None if gathering is None else native_changelog.take_records
        await changelog.reader.read_range(
            changelog.topic, changelog.number, start, high_watermark, consume, take
        )
        restore.finish()
        return restore

    def _native_restore(self, store: Store) -> NativeRestore | None:
        """Return the restore by the native core; None = Python restores."""
        options = self._options
        if native.core is None or not self._resident or not options.persistent or options.max_age_ms:
            return None
        state = store.state()
        known = state.meta if state else None
        return NativeRestore(options.capacity, store, known, timed=options.promise is not None)

    async def _take_over(self, store: Store, restore: Restore) -> None:
        """Turn the restored content into the memory, at the configured capacity."""
        options, meta = self._options, restore.meta
        stored_index = None if self._resident else StoredIndex(store, options.capacity, self._find)
        ring = await self._slices.run(making_ring(options, restore, stored_index))
        former = self.memory.ring
        self.memory = LaneMemory(
            ring=ring,
            # Hops in memory only are forgotten at every opening, like the ring.
            hops=HopMemory.restored(options.capacity, restore.hops.items() if options.persistent else ()),
            meta=meta,
            position=restore.position,
            incarnation=meta.incarnation if meta else secrets.token_hex(8),
            older=older_capacities(options.capacity, meta),
            stored_index=stored_index,
        )
        await self._slices.run(emptying(restore.occupants))
        await self.forget(former)

    async def forget(self, ring: Ring) -> None:
        """Free the memory of a ring in time slices."""
        if isinstance(ring.index, ResidentIndex | NativeIndex):
            await self._slices.run(ring.index.emptying())
