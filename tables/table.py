"""The changelogged table of a lane: ring, hop memory, RocksDB and changelog position.

State follows the commit: :meth:`LaneTable.check` and :meth:`LaneTable.record` change nothing, :meth:`LaneTable.apply` does. A crash after
a commit leaves RocksDB behind, and the changelog repairs it.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
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
from tables.hops import NOTHING, HopMemory, Judged, changelog_records
from tables.native_index import NativeIndex
from tables.promise import Coverage, coverage
from tables.resize import collect_garbage
from tables.restore import ChangelogBounds
from tables.ring import Checked, Ring
from tables.rocksdb import chunks
from tables.rocksdb.errors import DamagedStoreError
from tables.rocksdb.lane_store import LaneStore
from tables.rocksdb.store import StoredState, Writes
from tables.table_restore import ChangelogPartition, TableRestore

if TYPE_CHECKING:
    from native._core import Ids

IN_PYTHON_MAX: Final = 1_000_000
"""Limit of IDs that Python keeps in memory, even if the settings allow more. Larger rings stay in RocksDB.

An ID takes at least 188 bytes in Python, and 64 in the native core.
"""


class LaneTable:
    """Ring and store of one lane. Not safe for concurrent use: a lane is serial."""

    def __init__(self, path: Path, options: TableOptions, slices: TimeSlices | None = None) -> None:
        """Create a closed table. ``path``: the lane's RocksDB folder; ``slices``: time slices of the process for long work."""
        most = options.resident_ids_max
        if native.core is None or options.max_age_ms:
            most = min(most, IN_PYTHON_MAX)
        self.options = options
        self._resident = options.capacity <= most or not options.persistent
        self.store = LaneStore(path, indexed=not self._resident)
        self._restore = TableRestore(
            options, self.store, slices or TimeSlices(), self.find, resident=self._resident
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

    async def open(
        self, reader: LogReader, topic: str, partition: int, bounds: ChangelogBounds
    ) -> tuple[int, Restored]:
        """Bring ring and store to the changelog's high watermark. May be called again after a failure.

        Returns:
            The epoch for later calls of :meth:`apply`, and the cost of the opening.

        Raises:
            PrerequisiteError: The folder is unusable.
            FormatError: The changelog contains records of a later version.
            ForeignChangelogError: The changelog belongs to another address.
            LogStalledError: The changelog's end cannot be reached.
        """
        restored = await self._restore.restore(ChangelogPartition(reader, topic, partition, bounds))
        return self.store.opened().epoch, restored

    def plain_index(self) -> "Ids | None":
        """Return the native core's index if it and the ring's head alone decide about IDs and no old slots remain; otherwise None."""
        index = self.ring.index
        return index.ids if isinstance(index, NativeIndex) and not self._restore.memory.older else None

    def check(self, ids: Sequence[bytes | None], times: Sequence[int]) -> Checked:
        """Return verdicts for a batch of encoded IDs with record timestamps, in milliseconds. Changes nothing."""
        return self.ring.check(ids, times)

    def find(self, sequences: Sequence[int]) -> list[Slot | None]:
        """Return the committed slots of these sequences; None = not found."""
        if not self.options.persistent:
            return [self._restore.memory.volatile.get(sequence) for sequence in sequences]
        found: dict[int, Slot] = {}
        for capacity in (self.options.capacity, *(item[0] for item in self._restore.memory.older)):
            missing = [sequence for sequence in sequences if sequence not in found]
            if not missing or not capacity:
                continue
            slots = self.store.opened().slots_of([codec.ring_key(capacity, number) for number in missing])
            found |= {
                sequence: slot
                for sequence, slot in zip(missing, slots, strict=True)
                if slot is not None and slot.sequence == sequence
            }
            left = [number for number in missing if number not in found]
            if left and self.store.opened().chunk_keys():
                found |= self.store.opened().chunk_slots(capacity, left)
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
        """Return whether the ring keeps its promise; None = no promise, or RocksDB is unreadable."""
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
        """Return the change of an outcome; ``origins``: origins of the new IDs, in order. Changes nothing."""
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
        """Return the change of an outcome with encoded ring records. Changes nothing."""
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
        """Return the changelog records of a change that precede its meta record. A value of None is a tombstone."""
        tombstones: list[tuple[bytes, bytes | None]] = [(key, None) for key in change.removed]
        return [*tombstones, *change.slots, *change.hops] if self.options.persistent else tombstones

    def apply(self, epoch: int, change: Change, position: int) -> None:
        """Apply a committed change to store and ring. ``epoch``: from :meth:`open`. Raises StaleEpochError if the lane has been opened again since.

        ``position``: changelog offset after the change's last record; 0 = the broker did not return it. Then the next opening finds that RocksDB
        and changelog differ, and rebuilds.
        """
        memory = self._restore.memory
        stored_index = memory.stored_index

        def fill(writes: Writes) -> None:
            checked, meta, head = change.checked, change.meta, self.ring.head
            # Checked before any write: the first new ID gets the sequence at the head.
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
        self.store.opened().write(epoch, state, fill)
        if not self.options.persistent:
            memory.remember(change.slots)
        memory.commit(change, position)

    def _put_slots(self, writes: Writes, change: Change) -> None:
        chunk_keys, capacity, head = self.store.opened().chunk_keys(), change.meta.capacity, change.meta.head
        if not isinstance(change.slots, Chunk):
            writes.put_slots(change.slots)
        elif change.checked.new_ids:
            key = chunks.key_of(capacity, head - 1)
            writes.put_chunk(key, change.slots)
            chunk_keys.append(key)
        for key in chunk_keys.dead(max(change.meta.floor, head - capacity)):
            writes.delete_chunk(key)

    async def dispose(self) -> None:
        """Close RocksDB and free the memory in time slices. The table is unusable afterwards."""
        self.close()
        await self._restore.forget(self.ring)

    def close(self) -> None:
        """Close RocksDB; a second call does nothing."""
        self.store.close()
