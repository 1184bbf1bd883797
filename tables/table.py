"""The changelogged table of a lane: ring, hop memory, RocksDB and changelog position.

State follows the commit: :meth:`LaneTable.check` and :meth:`LaneTable.record` change nothing, :meth:`LaneTable.apply` does. A crash after
a commit leaves RocksDB behind, and the changelog repairs it.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Final

import native
from ringfence_kafka.concurrency.cooperative import TimeSlices
from ringfence_kafka.errors import PrerequisiteError, require
from ringfence_kafka.readers.log_reader import LogReader
from tables import codec
from tables.change import Change, Restored, TableOptions
from tables.codec import Chunk, FormatError, Meta, Origin, Slot
from tables.hops import NOTHING, Arrival, HopMemory, Judged, changelog_records
from tables.native_index import NativeIndex
from tables.promise import Coverage, coverage
from tables.resize import collect_garbage
from tables.restore import ChangelogBounds
from tables.ring import Checked, Ring
from tables.rocksdb import chunks
from tables.rocksdb.errors import DamagedStoreError
from tables.rocksdb.lane_store import LaneStore
from tables.rocksdb.store import StoredState
from tables.rocksdb.writes import Writes
from tables.table_restore import ChangelogPartition, TableRestore

if TYPE_CHECKING:
    from native._core import Ids

IN_PYTHON_MAX: Final = 1_000_000
"""IDs of a ring that Python keeps in memory at most, also if the settings allow more; larger rings stay in RocksDB. An ID takes 188 bytes
and more in Python, and 64 in the native core."""


class LaneTable:
    """Ring and store of one lane. Not safe for concurrent use: a lane is serial."""

    def __init__(self, path: Path, options: TableOptions, slices: TimeSlices | None = None) -> None:
        """``path`` is the lane's RocksDB folder; ``slices`` are those of the process, for what takes long."""
        most = options.resident_ids_max
        if native.core is None or options.max_age_ms:
            most = min(most, IN_PYTHON_MAX)
        self.options = options
        self._resident = options.capacity <= most or not options.persistent
        self._store = LaneStore(path, indexed=not self._resident)
        self._restore = TableRestore(
            options, self._store, slices or TimeSlices(), self.find, resident=self._resident
        )

    @property
    def ring(self) -> Ring:
        """The IDs, as last committed."""
        return self._restore.memory.ring

    @property
    def hops(self) -> HopMemory:
        """The hops of bridges, as last committed."""
        return self._restore.memory.hops

    @property
    def meta(self) -> Meta | None:
        """The newest meta record; None before the lane's first transaction."""
        return self._restore.memory.meta

    @property
    def position(self) -> int:
        """Changelog offset after the last record that ring and store reflect."""
        return self._restore.memory.position

    @property
    def path(self) -> Path:
        """The folder of the lane's RocksDB."""
        return self._store.path

    @property
    def in_memory(self) -> bool:
        """Whether RocksDB's files are in memory, because the folder cannot be written."""
        return self._store.in_memory

    @property
    def broken(self) -> bool:
        """Whether a write to RocksDB has failed since it was opened."""
        return self._store.broken

    def keep_in_memory(self, wanted: bool) -> None:
        """Have the next opening keep RocksDB's files in memory, or in the folder again. The changelog has all that they hold."""
        self._store.keep_in_memory(wanted)

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
        restored = await self._restore.restore(ChangelogPartition(reader, topic, partition, bounds))
        return self._store.opened().epoch, restored

    def stored(self) -> StoredState | None:
        """Return what RocksDB reflects; None = it is empty, or cannot be read.

        Raises:
            PrerequisiteError: the folder cannot be used.
        """
        return self._store.stored()

    def stored_slots(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the slots in RocksDB; see :meth:`tables.rocksdb.store.Store.slots`."""
        return self._store.opened().slots()

    def stored_hops(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the hops records in RocksDB; see :meth:`tables.rocksdb.store.Store.hops`."""
        return self._store.opened().hops()

    def begin_afresh(self) -> None:
        """Empty RocksDB: the next opening restores everything from the changelog."""
        self._store.renew()

    def plain_index(self) -> "Ids | None":
        """Return the native core's index, if it and the ring's head decide about an ID alone; None = they do not, or slots are to be removed."""
        index = self.ring.index
        return index.ids if isinstance(index, NativeIndex) and not self._restore.memory.older else None

    def check(self, ids: Sequence[bytes | None], times: Sequence[int]) -> Checked:
        """Verdicts for a batch of encoded IDs and record timestamps (ms). Changes nothing."""
        return self.ring.check(ids, times)

    def check_units(self, units: Sequence[Sequence[bytes]], times: Sequence[int]) -> Checked:
        """Check messages that may have several IDs."""
        return self.ring.check_units(units, times)

    def check_hops(self, arrivals: Sequence[Arrival]) -> Judged:
        """Which of these records came over their bridge before. Changes nothing."""
        return self.hops.check(arrivals)

    def find(self, sequences: Sequence[int]) -> list[Slot | None]:
        """Return the slots of these sequences, as far as they are committed; None = not there."""
        if not self.options.persistent:
            return [self._restore.memory.volatile.get(sequence) for sequence in sequences]
        found: dict[int, Slot] = {}
        for capacity in (self.options.capacity, *(item[0] for item in self._restore.memory.older)):
            missing = [sequence for sequence in sequences if sequence not in found]
            if not missing or not capacity:
                continue
            slots = self._store.opened().slots_of([codec.ring_key(capacity, number) for number in missing])
            found |= {
                sequence: slot
                for sequence, slot in zip(missing, slots, strict=True)
                if slot is not None and slot.sequence == sequence
            }
            left = [number for number in missing if number not in found]
            if left and self._store.opened().chunk_keys():
                found |= self._store.opened().chunk_slots(capacity, left)
        return [found.get(sequence) for sequence in sequences]

    def seconds_covered(self) -> float | None:
        """Return the seconds between the records of the oldest and newest live ID; None = fewer than two, or unreadable.

        An unreadable RocksDB is not an error here: the operations that need the data report it.
        """
        ring = self.ring
        if len(ring) < 2:
            return None
        oldest, newest = map(self._timestamp, (ring.low, ring.head - 1))
        # A forwarded message keeps its older timestamp.
        return None if oldest is None or newest is None else max(0, newest - oldest) / 1000

    def coverage(self) -> Coverage | None:
        """Return whether the ring holds its promise; None = it has none, or RocksDB is unreadable."""
        ring = self.ring
        if ring.promise is None:
            return None
        oldest = self._timestamp(ring.low) if len(ring) else None
        if len(ring) and oldest is None:
            return None
        return coverage(ring.promise, ring.capacity, ring.head, ring.floor, oldest)

    def _timestamp(self, sequence: int) -> int | None:
        try:
            slot = self.find([sequence])[0]
        except (DamagedStoreError, FormatError, PrerequisiteError):
            return None
        return None if slot is None else slot.origin.timestamp

    def record(
        self,
        checked: Checked,
        origins: Sequence[Origin],
        next_offsets: Mapping[str, int],
        partition_counts: Mapping[str, int],
        topic_ids: Mapping[str, str],
        judged: Judged = NOTHING,
    ) -> Change:
        """Return the changelog records of an outcome; ``origins`` are those of the new IDs, in order. Changes nothing."""
        ring = self.ring
        slots = [
            (codec.ring_key(ring.capacity, sequence), codec.ring_value(sequence, each, origin, digest))
            for (sequence, each), origin, digest in zip(
                enumerate(checked.new_ids, checked.first_sequence),
                origins,
                checked.new_digests or repeat(0, len(origins)),
                strict=True,
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
        """Record ring records that are there already."""
        ring, memory, options = self.ring, self._restore.memory, self.options
        head = ring.head + len(checked.new_ids)
        floor, promise = ring.aged(checked.new_times)
        older, removed = collect_garbage(memory.older, max(floor, head - ring.capacity))
        meta = Meta(
            capacity=ring.capacity,
            head=head,
            floor=floor,
            next_offsets=dict(next_offsets),
            partition_counts=dict(partition_counts),
            incarnation=memory.incarnation,
            older=older,
            persistent=options.persistent,
            topic_ids=dict(topic_ids),
            app=options.app,
            address=options.address,
            bridged=bool(judged.changed) or (memory.meta is not None and memory.meta.bridged),
            max_age_ms=options.max_age_ms,
            rules={**(memory.meta.rules if memory.meta else {}), **options.rules},
            lanes=options.lanes,
            promise=promise,
        )
        return Change(
            checked, slots, removed, meta, judged, changelog_records(judged) if judged.changed else ()
        )

    def persisted(self, change: Change) -> list[tuple[bytes, bytes | None]]:
        """Return the records of a change that go into the changelog before its meta record; None = tombstone."""
        tombstones: list[tuple[bytes, bytes | None]] = [(key, None) for key in change.removed]
        return [*tombstones, *change.slots, *change.hops] if self.options.persistent else tombstones

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
        memory = self._restore.memory
        stored_index = memory.stored_index

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
            if not self.options.persistent:
                return
            if stored_index is not None:
                options = self.options
                live_from = None if options.max_age_ms or options.promise else self.ring.low
                stored_index.persist(writes, checked.first_sequence, checked.new_ids, live_from)
            self._put_slots(writes, change)
            writes.put_hops(change.hops)

        position = position or self.position
        state = StoredState(change.meta, position, time.time(), indexed=not self._resident)
        self._store.opened().write(epoch, state, fill)
        if not self.options.persistent:
            memory.remember(change.slots)
        memory.commit(change, position)

    def _put_slots(self, writes: Writes, change: Change) -> None:
        chunk_keys, capacity, head = self._store.opened().chunk_keys(), change.meta.capacity, change.meta.head
        if not isinstance(change.slots, Chunk):
            writes.put_slots(change.slots)
        elif change.checked.new_ids:
            key = chunks.key_of(capacity, head - 1)
            writes.put_chunk(key, change.slots)
            chunk_keys.add(key)
        for key in chunk_keys.dead(max(change.meta.floor, head - capacity)):
            writes.delete_chunk(key)

    async def dispose(self) -> None:
        """Close RocksDB and let go of what is in memory, without holding up others. The table is not to be used any more."""
        self.close()
        await self._restore.dispose()

    def close(self) -> None:
        """Close RocksDB; a second call does nothing."""
        self._store.close()
