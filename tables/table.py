"""The changelogged table of a lane: ring, RocksDB, changelog position, and how they come back.

State follows the commit, never leads it: :meth:`LaneTable.check` and :meth:`LaneTable.record` change nothing;
:meth:`LaneTable.apply` is called after the transaction was committed. A crash before the commit leaves no trace;
one after it leaves RocksDB behind, and the changelog repairs it.
"""

import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from conf.settings import KafkaSettings
from tables import changelog, codec
from tables.codec import FormatError, Meta, Origin
from tables.index import StoredIndex
from tables.restore import ChangelogBounds, Restore, UntrustedError, trusted_start
from tables.ring import Checked, Index, ResidentIndex, Ring
from tables.store import DamagedStoreError, Store, StoredState, Writes

log: Final = logging.getLogger("ringfence.table")


class Restored(NamedTuple):
    """What opening the table took."""

    records: int
    """Changelog records read, the one read again as a check included."""
    seconds: float
    reused: bool
    """RocksDB was trusted; else it was built from the whole changelog."""


class Change(NamedTuple):
    """What one batch does to the table: in the transaction as records, after it by :meth:`LaneTable.apply`."""

    checked: Checked
    slots: list[tuple[bytes, bytes]]
    """Ring records: key, value."""
    meta: Meta


class LaneTable:
    """Ring and store of one lane. Not safe for concurrent use: a lane is serial."""

    def __init__(self, path: Path, capacity: int, resident_ids_max: int) -> None:
        """``path`` is the lane's RocksDB folder; above ``resident_ids_max`` IDs the index stays in RocksDB."""
        self._path = path
        self._capacity = capacity
        self._resident = capacity <= resident_ids_max
        self._store: Store | None = None
        self._stored_index: StoredIndex | None = None
        self.ring = Ring(capacity)
        self.meta: Meta | None = None
        """As last committed; None before the lane's first transaction."""
        self.position = 0
        """Changelog offset after the last record that ring and store reflect."""
        self._incarnation = ""

    async def open(
        self, kafka: KafkaSettings, topic: str, partition: int, bounds: ChangelogBounds
    ) -> tuple[int, Restored]:
        """Bring ring and store to the changelog's high watermark. May be called again, after a failure.

        Returns:
            The epoch that :meth:`apply` must be given from now on, and what it took.

        Raises:
            PrerequisiteError: the folder cannot be used.
            FormatError: the changelog holds records of a later version.
            ChangelogStalledError: the changelog's end cannot be reached.
        """
        began = time.monotonic()
        try:
            if self._store is None:
                self._store = Store(self._path)
            reused = self._store.state() is not None
            start = trusted_start(self._store.state(), bounds, indexed=not self._resident)
            restore = await self._restore(self._store, kafka, topic, partition, start, bounds.high_watermark)
        except (UntrustedError, FormatError, DamagedStoreError) as error:
            log.warning("%s is rebuilt from the changelog: %s", self._path, error)
            reused = False
            self.close()
            self._store = Store.create_afresh(self._path)
            restore = await self._restore(
                self._store, kafka, topic, partition, bounds.start, bounds.high_watermark
            )
        self.meta, self.position = restore.meta, restore.position
        self._incarnation = self.meta.incarnation if self.meta else secrets.token_hex(8)
        self._stored_index = None if self._resident else StoredIndex(self._store, self._capacity)
        self.ring = make_ring(self._capacity, restore, self._stored_index)
        return self._store.epoch, Restored(restore.count, time.monotonic() - began, reused)

    async def _restore(
        self, store: Store, kafka: KafkaSettings, topic: str, partition: int, start: int, high_watermark: int
    ) -> Restore:
        restore = Restore(store, store.begin_epoch(), resident=self._resident)
        await changelog.read(kafka, topic, partition, start, high_watermark, restore.consume)
        restore.finish()
        return restore

    def check(self, ids: Sequence[bytes | None]) -> Checked:
        """Verdicts for a batch of encoded IDs. Changes nothing."""
        return self.ring.check(ids)

    def record(
        self,
        checked: Checked,
        origins: Sequence[Origin],
        next_offsets: Mapping[str, int],
        partition_counts: Mapping[str, int],
    ) -> Change:
        """The changelog records of an outcome; ``origins`` are those of the new IDs, in order. Changes nothing."""
        ring = self.ring
        slots = [
            (codec.ring_key(ring.capacity, sequence), codec.ring_value(sequence, each, origin))
            for (sequence, each), origin in zip(
                enumerate(checked.new_ids, checked.first_sequence), origins, strict=True
            )
        ]
        meta = Meta(
            capacity=ring.capacity,
            head=ring.head + len(checked.new_ids),
            floor=ring.floor,
            next_offsets=dict(next_offsets),
            partition_counts=dict(partition_counts),
            incarnation=self._incarnation,
        )
        return Change(checked, slots, meta)

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
        store, stored_index = self._store, self._stored_index
        if store is None:
            raise AssertionError("the table is closed")

        def fill(writes: Writes) -> None:
            if stored_index is not None:
                stored_index.persist(writes, change.checked.first_sequence, change.checked.new_ids)
            for key, value in change.slots:
                writes.put_slot(key, value)

        position = max(position, self.position)
        store.write(epoch, StoredState(change.meta, position, time.time(), indexed=not self._resident), fill)
        self.ring.apply(change.checked)
        self.meta, self.position = change.meta, position

    def close(self) -> None:
        """Close RocksDB; a second call does nothing."""
        if self._store is not None:
            self._store.close()
            self._store = None


def make_ring(capacity: int, restore: Restore, index: Index | None = None) -> Ring:
    """The ring as the changelog tells it, at the configured capacity.

    A change of capacity moves the floor: shrinking keeps the newest N, and what was evicted under the smaller
    size stays evicted when the ring grows again.
    """
    meta = restore.meta
    if meta is None:
        return Ring(capacity, index=index)
    floor = meta.floor
    if capacity != meta.capacity:
        floor = max(floor, meta.head - min(capacity, meta.capacity))
    ring = Ring(capacity, meta.head, floor, index)
    if index is None:
        entries = ((slot.sequence, slot.id) for slot in restore.slots.values())
        ring.index = ResidentIndex.rebuild(entries, ring.low, ring.head)
    return ring
