"""The changelogged table of a lane: ring, hop memory, RocksDB, changelog position, and how they come back.

State follows the commit, never leads it: :meth:`LaneTable.check` and :meth:`LaneTable.record` change nothing;
:meth:`LaneTable.apply` is called after the transaction was committed. A crash before the commit leaves no trace;
one after it leaves RocksDB behind, and the changelog repairs it.
"""

import logging
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import native
from ringfence_kafka.concurrency.cooperative import TimeSlices, emptying
from ringfence_kafka.errors import PrerequisiteError, require
from ringfence_kafka.process.failpoints import reach
from ringfence_kafka.readers.log_reader import LogReader
from tables import chunks, codec, native_changelog
from tables.codec import Chunk, FormatError, Meta, Origin, Slot
from tables.hops import NOTHING, Arrival, HopMemory, Judged, changelog_records
from tables.index import StoredIndex
from tables.native_index import NativeIndex
from tables.native_restore import IrregularError, NativeRestore
from tables.resize import collect_garbage, following_ring, making_ring, older_capacities
from tables.restore import ChangelogBounds, Restore, UntrustedError, require_own, trusted_start
from tables.ring import Checked, ResidentIndex, Ring
from tables.store import DamagedStoreError, Store, StoredState, Writes

if TYPE_CHECKING:
    from native._core import Ids

log: Final = logging.getLogger("ringfence.table")


IN_PYTHON_MAX: Final = 1_000_000
"""An ID that Python keeps takes 188 bytes and more, where the core takes 56: above so many they stay in RocksDB, whatever is allowed."""


class Restored(NamedTuple):
    """What opening the table took."""

    records: int
    """Changelog records read, the one read again as a check included."""
    seconds: float
    reused: bool
    """RocksDB was trusted; else it was built from the whole changelog."""
    kept: bool = False
    """Ring and hop memory were in memory still, and only what came since was read."""


class Change(NamedTuple):
    """What one batch does to the table: in the transaction as records, after it by :meth:`LaneTable.apply`."""

    checked: Checked
    slots: Iterable[tuple[bytes, bytes]]
    """Ring records: key, value."""
    removed: list[bytes]
    """Keys of slots of an earlier capacity that hold nothing alive any more: tombstones."""
    meta: Meta
    judged: Judged = NOTHING
    """What came over bridges."""
    hops: Sequence[tuple[bytes, bytes]] = ()
    """Hops records: key, value."""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What the configuration says of a lane's table."""

    capacity: int
    resident_ids_max: int
    """Above so many IDs the index stays in RocksDB."""
    max_age_ms: int = 0
    persistent: bool = True
    """False: IDs are in memory only and forgotten at every opening."""
    app: str = ""
    """The app's ID and ..."""
    address: str = ""
    """... the address: whose rings these are."""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """Definition of ID, group and home, for the meta record."""


class LaneTable:
    """Ring and store of one lane. Not safe for concurrent use: a lane is serial."""

    def __init__(self, path: Path, options: TableOptions, slices: TimeSlices | None = None) -> None:
        """``path`` is the lane's RocksDB folder; ``slices`` are those of the process, for what takes long."""
        self._slices = slices or TimeSlices()
        self._path = path
        self._options = options
        most = options.resident_ids_max
        if native.core is None or options.max_age_ms:
            most = min(most, IN_PYTHON_MAX)
        self._resident = options.capacity <= most or not options.persistent
        self._store: Store | None = None
        self._in_memory_store = False
        self._stored_index: StoredIndex | None = None
        self._volatile: dict[int, Slot] = {}
        """Sequence → slot, where nothing is persisted."""
        self.ring = Ring(options.capacity)
        self.hops = HopMemory(options.capacity)
        self.meta: Meta | None = None
        """As last committed; None before the lane's first transaction."""
        self.position = 0
        """Changelog offset after the last record that ring and store reflect."""
        self._incarnation = ""
        self._older: list[list[int]] = []
        self._whole = False
        """Ring and hop memory are what was committed up to :attr:`position`."""

    @property
    def options(self) -> TableOptions:
        """The options that the table was made with."""
        return self._options

    @property
    def path(self) -> Path:
        """The folder of the lane's RocksDB."""
        return self._path

    @property
    def in_memory(self) -> bool:
        """Whether RocksDB's files are in memory, because the folder cannot be written."""
        return self._in_memory_store

    @property
    def broken(self) -> bool:
        """Whether a write to RocksDB has failed since it was opened."""
        return self._store is not None and self._store.broken

    def keep_in_memory(self, wanted: bool) -> None:
        """Have the next opening keep RocksDB's files in memory, or in the folder again. The changelog has all that they hold."""
        if wanted != self._in_memory_store:
            self.close()
            self._in_memory_store = wanted

    async def open(
        self, reader: LogReader, topic: str, partition: int, bounds: ChangelogBounds
    ) -> tuple[int, Restored]:
        """Bring ring and store to the changelog's high watermark. May be called again, after a failure.

        Returns:
            The epoch that :meth:`apply` must be given from now on, and what it took.

        Raises:
            PrerequisiteError: the folder cannot be used.
            FormatError: the changelog holds records of a later version.
            ForeignChangelogError: the changelog is another address's.
            LogStalledError: the changelog's end cannot be reached.
        """
        began, count, reused = time.monotonic(), 0, False
        in_python: bool | None = None
        """How it is rebuilt; None = it is not."""
        try:
            self._store = self._sound_store()
            state = self._store.state()
            reused = state is not None
            start = trusted_start(state, bounds, indexed=not self._resident)
            if self._in_memory(state):
                self._whole = False  # until it has caught up
                restore = await self._restore(
                    self._store, reader, topic, partition, start, bounds.high_watermark, behind=True
                )
                if await self._follow(restore):
                    return self._store.epoch, Restored(
                        restore.count, time.monotonic() - began, reused=True, kept=True
                    )
                count = restore.count - 1  # its last record is read once more
                start = trusted_start(self._store.state(), bounds, indexed=not self._resident)
            self._whole = False
            restore = await self._restore(self._store, reader, topic, partition, start, bounds.high_watermark)
            await self._begin(self._store, restore)
        except (UntrustedError, FormatError, DamagedStoreError, IrregularError) as error:
            log.warning("%s is rebuilt from the changelog: %s", self._path, error)
            in_python = isinstance(error, IrregularError)
        if (
            in_python is not None
        ):  # only here: an error keeps open what was being read of RocksDB, and with it its lock
            reused = False
            restore = await self._rebuild(reader, topic, partition, bounds, in_python=in_python)
        self._whole = True
        return self._opened().epoch, Restored(count + restore.count, time.monotonic() - began, reused)

    async def _rebuild(
        self,
        reader: LogReader,
        topic: str,
        partition: int,
        bounds: ChangelogBounds,
        *,
        in_python: bool,
    ) -> Restore:
        """From the whole changelog, with an empty RocksDB; ``in_python``: whatever the order is in which its records stand."""
        self.close()
        self._store = self._new_store()
        try:
            restore = await self._restore(
                self._store,
                reader,
                topic,
                partition,
                bounds.start,
                bounds.high_watermark,
                in_python=in_python,
            )
            await self._begin(self._store, restore)
        except IrregularError as error:
            log.warning("%s is rebuilt once more, without the native core: %s", self._path, error)
        else:
            return restore
        return await self._rebuild(reader, topic, partition, bounds, in_python=True)

    def stored(self) -> StoredState | None:
        """Return what RocksDB reflects; None = it is empty, or cannot be read.

        Raises:
            PrerequisiteError: the folder cannot be used.
        """
        try:
            self._store = self._sound_store()
            return self._store.state()
        except (UntrustedError, FormatError, DamagedStoreError):
            return None

    def stored_slots(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the slots in RocksDB; see :meth:`tables.store.Store.slots`."""
        return self._opened().slots()

    def stored_hops(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the hops records in RocksDB; see :meth:`tables.store.Store.hops`."""
        return self._opened().hops()

    def begin_afresh(self) -> None:
        """Empty RocksDB: the next opening restores everything from the changelog."""
        self._whole = False
        self.close()
        self._store = self._new_store()

    def _in_memory(self, state: StoredState | None) -> bool:
        """Whether all that RocksDB holds is in memory too, and only what the changelog has behind it is to be read."""
        return (
            self._whole
            and self._resident
            and self._options.persistent
            and state is not None
            and (state.meta, state.position) == (self.meta, self.position)
        )

    async def _follow(self, restore: Restore) -> bool:
        """Take over what came behind what is in memory; whether that was possible."""
        if self.meta is None or not await self._slices.run(following_ring(self.ring, self.meta, restore)):
            return False
        self.hops.follow(restore.hops.items())
        self.meta, self.position = restore.meta, restore.position
        self._older = older_capacities(self._options.capacity, self.meta)
        self._whole = True
        return True

    def _sound_store(self) -> Store:
        """The open store, or the one on disk, also where a write to the open one failed.

        Raises:
            DamagedStoreError: damage was met, now or while it was in use.
            UntrustedError: it was not built to its end.
        """
        if self._store is not None and self._store.damaged:
            raise DamagedStoreError(f"{self._path}: damage was met while it was in use")
        if self._store is not None and self._store.broken:
            self.close()
        store = self._store = self._open_store() if self._store is None else self._store
        if store.unfinished:
            raise UntrustedError("it was not built to its end")
        return store

    def _open_store(self) -> Store:
        return Store(self._path, indexed=not self._resident, in_memory=self._in_memory_store)

    def _new_store(self) -> Store:
        if self._in_memory_store:
            return self._open_store()  # what is in the folder stays there
        return Store.create_afresh(self._path, indexed=not self._resident)

    async def _restore(
        self,
        store: Store,
        reader: LogReader,
        topic: str,
        partition: int,
        start: int,
        high_watermark: int,
        *,
        behind: bool = False,
        in_python: bool = False,
    ) -> Restore:
        def check(meta: Meta) -> None:
            require_own(meta, self._options.app, self._options.address, f"{topic}/{partition}")

        gathering = None if behind or in_python else self._gathering(store)
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
            # A transaction ends there. What lies beyond, if somebody else has the lane, may end in the midst of one.
            within = native_changelog.below(records, high_watermark)
            if within:
                await self._slices.run(restore.consuming(within))
            await reach("mid-restore", self._path.name)

        await self._slices.run(restore.load())
        take = None if gathering is None else native_changelog.take
        await reader.read_range(topic, partition, start, high_watermark, consume, take)
        restore.finish()
        if not behind:
            # In memory only: forgotten at every opening, as the ring is.
            known = restore.hops.items() if self._options.persistent else ()
            self.hops = HopMemory.restored(self._options.capacity, known)
        return restore

    def _gathering(self, store: Store) -> NativeRestore | None:
        """What restores the ring without an object an ID; None = Python does it."""
        options = self._options
        if native.core is None or not self._resident or not options.persistent or options.max_age_ms:
            return None
        state = store.state()
        return NativeRestore(options.capacity, store, state.meta if state else None)

    async def _begin(self, store: Store, restore: Restore) -> None:
        """Take over what was restored, at the configured capacity."""
        options = self._options
        self.meta, self.position = restore.meta, restore.position
        self._incarnation = self.meta.incarnation if self.meta else secrets.token_hex(8)
        self._older = older_capacities(options.capacity, self.meta)
        self._volatile = {}
        self._stored_index = None if self._resident else StoredIndex(store, options.capacity, self.find)
        steps = making_ring(
            options.capacity,
            restore,
            self._stored_index,
            max_age_ms=options.max_age_ms,
            persistent=options.persistent,
        )
        former, self.ring = self.ring, await self._slices.run(steps)
        await self._slices.run(emptying(restore.occupants))
        await self._forget(former)

    async def _forget(self, ring: Ring) -> None:
        if isinstance(ring.index, ResidentIndex | NativeIndex):
            await self._slices.run(ring.index.emptying())

    def plain_index(self) -> "Ids | None":
        """What the core knows the IDs by, as far as that and the ring's head say all about an ID; None = they do not, or slots are to be removed."""
        index = self.ring.index
        return index.ids if isinstance(index, NativeIndex) and not self._older else None

    def check(self, ids: Sequence[bytes | None], times: Sequence[int]) -> Checked:
        """Verdicts for a batch of encoded IDs and record timestamps (ms). Changes nothing."""
        return self.ring.check(ids, times)

    def check_units(self, units: Sequence[Sequence[bytes]], times: Sequence[int]) -> Checked:
        """The same where messages may have several IDs."""
        return self.ring.check_units(units, times)

    def check_hops(self, arrivals: Sequence[Arrival]) -> Judged:
        """Which of these records came over their bridge before. Changes nothing."""
        return self.hops.check(arrivals)

    def find(self, sequences: Sequence[int]) -> list[Slot | None]:
        """The slots of these sequences, as far as they are committed; None = not there."""
        if not self._options.persistent:
            return [self._volatile.get(sequence) for sequence in sequences]
        found: dict[int, Slot] = {}
        for capacity in (self._options.capacity, *(item[0] for item in self._older)):
            missing = [sequence for sequence in sequences if sequence not in found]
            if not missing or not capacity:
                continue
            slots = self._opened().slots_of([codec.ring_key(capacity, number) for number in missing])
            found |= {
                sequence: slot
                for sequence, slot in zip(missing, slots, strict=True)
                if slot is not None and slot.sequence == sequence
            }
            left = [number for number in missing if number not in found]
            if left and self._opened().chunk_keys():
                found |= self._opened().chunk_slots(capacity, left)
        return [found.get(sequence) for sequence in sequences]

    def seconds_covered(self) -> float | None:
        """Between the records of the oldest and the newest live ID; None with fewer than two, or where RocksDB cannot be read.

        It is only told: whoever needs what cannot be read says so.
        """
        ring = self.ring
        if len(ring) < 2:
            return None
        try:
            oldest, newest = self.find([ring.low, ring.head - 1])
        except (DamagedStoreError, FormatError, PrerequisiteError):
            return None
        return (
            None
            if oldest is None or newest is None
            else (newest.origin.timestamp - oldest.origin.timestamp) / 1000
        )

    def record(
        self,
        checked: Checked,
        origins: Sequence[Origin],
        next_offsets: Mapping[str, int],
        partition_counts: Mapping[str, int],
        topic_ids: Mapping[str, str],
        judged: Judged = NOTHING,
    ) -> Change:
        """The changelog records of an outcome; ``origins`` are those of the new IDs, in order. Changes nothing."""
        ring = self.ring
        slots = [
            (codec.ring_key(ring.capacity, sequence), codec.ring_value(sequence, each, origin))
            for (sequence, each), origin in zip(
                enumerate(checked.new_ids, checked.first_sequence), origins, strict=True
            )
        ]
        return self.record_slots(checked, slots, next_offsets, partition_counts, topic_ids, judged)

    def record_slots(
        self,
        checked: Checked,
        slots: Iterable[tuple[bytes, bytes]],
        next_offsets: Mapping[str, int],
        partition_counts: Mapping[str, int],
        topic_ids: Mapping[str, str],
        judged: Judged = NOTHING,
    ) -> Change:
        """The same for ring records that are there already."""
        ring = self.ring
        head = ring.head + len(checked.new_ids)
        older, removed = collect_garbage(self._older, max(ring.floor, head - ring.capacity))
        meta = Meta(
            capacity=ring.capacity,
            head=head,
            floor=ring.floor,
            next_offsets=dict(next_offsets),
            partition_counts=dict(partition_counts),
            incarnation=self._incarnation,
            older=older,
            persistent=self._options.persistent,
            topic_ids=dict(topic_ids),
            app=self._options.app,
            address=self._options.address,
            bridged=bool(judged.changed) or (self.meta is not None and self.meta.bridged),
            max_age_ms=self._options.max_age_ms,
            rules={**(self.meta.rules if self.meta else {}), **self._options.rules},
        )
        return Change(
            checked, slots, removed, meta, judged, changelog_records(judged) if judged.changed else ()
        )

    def persisted(self, change: Change) -> list[tuple[bytes, bytes | None]]:
        """What of a change goes into the changelog before its meta record; None = tombstone."""
        tombstones: list[tuple[bytes, bytes | None]] = [(key, None) for key in change.removed]
        return [*tombstones, *change.slots, *change.hops] if self._options.persistent else tombstones

    def apply(self, epoch: int, change: Change, position: int) -> None:
        """Make a committed change part of store and ring.

        Args:
            epoch: As returned by :meth:`open`.
            change: From :meth:`record`.
            position: Changelog offset after the change's last record; 0 = the broker did not say, and the next
                opening will find RocksDB and changelog apart and rebuild.

        Raises:
            StaleEpochError: the lane has been opened again since; nothing is written.
        """
        stored_index = self._stored_index

        def fill(writes: Writes) -> None:
            checked, meta, head = change.checked, change.meta, self.ring.head
            # Before anything is written: each new ID has the sequence that the head was when it came.
            require(
                checked.first_sequence == head, "checked at head", checked.first_sequence, "the head is", head
            )
            require(
                meta.head == head + len(checked.new_ids),
                "head",
                meta.head,
                "after",
                len(checked.new_ids),
                "IDs at",
                head,
            )
            for key in change.removed:
                writes.delete_slot(key)
            if not self._options.persistent:
                return
            if stored_index is not None:
                live_from = None if self._options.max_age_ms else self.ring.low
                stored_index.persist(writes, checked.first_sequence, checked.new_ids, live_from)
            self._put_slots(writes, change)
            writes.put_hops(change.hops)

        position = position or self.position
        state = StoredState(change.meta, position, time.time(), indexed=not self._resident)
        self._opened().write(epoch, state, fill)
        if not self._options.persistent:
            self._remember(change)
        self.ring.apply(change.checked)
        self.hops.apply(change.judged)
        self.meta, self.position, self._older = change.meta, position, change.meta.older

    def _put_slots(self, writes: Writes, change: Change) -> None:
        chunk_keys, capacity, head = self._opened().chunk_keys(), change.meta.capacity, change.meta.head
        if not isinstance(change.slots, Chunk):
            writes.put_slots(change.slots)
        elif change.checked.new_ids:
            key = chunks.key_of(capacity, head - 1)
            writes.put_chunk(key, change.slots)
            chunk_keys.add(key)
        for key in chunk_keys.dead(max(change.meta.floor, head - capacity)):
            writes.delete_chunk(key)

    def _remember(self, change: Change) -> None:
        for key, value in change.slots:
            slot = codec.decode_ring(key, value)
            self._volatile[slot.sequence] = slot
            self._volatile.pop(slot.sequence - self.ring.capacity, None)

    def _opened(self) -> Store:
        if self._store is None:
            raise AssertionError("the table is closed")
        return self._store

    async def dispose(self) -> None:
        """Close RocksDB and let go of what is in memory, without holding up others. The table is not to be used any more."""
        self.close()
        await self._forget(self.ring)

    def close(self) -> None:
        """Close RocksDB; a second call does nothing."""
        self._whole = False
        if self._store is not None:
            self._store.close()
            self._store = None
