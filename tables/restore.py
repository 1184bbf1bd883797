"""Restore of a lane's state from its changelog, and from RocksDB as far as it is trusted."""

import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from native.records import RawRecords
from ringfence_kafka.concurrency.cooperative import Steps
from ringfence_kafka.errors import ForeignChangelogError
from tables import codec
from tables.codec import FormatError, Meta, Slot
from tables.native_restore import NativeRestore
from tables.ring import STEP
from tables.rocksdb.errors import UntrustedError
from tables.rocksdb.store import Store, StoredState, Writes

FLUSH_RECORDS: Final = 5_000
"""Approximate number of records in a WriteBatch."""
MARKER: Final = 1
"""Offsets of the marker that ends a transaction. Nothing else directly follows a meta record."""
FLUSH_INDEXED: Final = 1_000
"""Number of records in a WriteBatch if RocksDB has the index. Each record is looked up, and the event loop waits meanwhile."""


def require_own(meta: Meta, app: str, address: str, changelog: str) -> None:
    """Raise ForeignChangelogError if a meta record belongs to another address."""
    theirs = (meta.app, meta.address)
    if theirs != (app, address):
        raise ForeignChangelogError(changelog, theirs, (app, address))


class ChangelogBounds(NamedTuple):
    """Bounds of the lane's changelog partition, read from the cluster after the fence."""

    start: int
    high_watermark: int
    delete_retention_s: float


def trusted_start(state: StoredState | None, bounds: ChangelogBounds, *, indexed: bool) -> int:
    """Return the changelog offset from which RocksDB lacks records.

    The record before the position, a meta record, is read again if it still exists. A changelog that lost its tail and grew again has
    another record there. If compaction has removed the record, a newer one exists in a later segment and RocksDB is far behind. Then a
    rebuild costs little more than catching up. Raises UntrustedError if RocksDB must be rebuilt.
    """
    if state is None:
        return bounds.start
    if state.position > bounds.high_watermark:
        raise UntrustedError(
            f"its position {state.position} lies beyond the changelog's end {bounds.high_watermark}"
        )
    if state.position + MARKER < bounds.start:
        raise UntrustedError(
            f"its position {state.position} lies before the changelog's start {bounds.start}"
        )
    age = time.time() - state.written_at
    if age > bounds.delete_retention_s / 2:
        raise UntrustedError(f"it is {age:.0f} s old: tombstones that it has not seen may be compacted away")
    if indexed and not state.indexed:
        raise UntrustedError("it holds no index, which a ring of this size needs")
    return max(bounds.start, state.position - 1)


class Restore:
    """Applies changelog records in order, to memory and, with a store, to RocksDB.

    A ring record applies only if its sequence is newer than that of its slot's occupant, whatever compaction removed. The last hops record
    of a route counts.
    """

    def __init__(
        self,
        store: Store | None,
        epoch: int,
        *,
        resident: bool,
        check: Callable[[Meta], None] = lambda _: None,
        behind: bool = False,
        gathering: NativeRestore | None = None,
        start: int = 0,
    ) -> None:
        """Prepare a restore. Without a store nothing is written, as in displays of rings.

        ``check`` gets each meta record, and raises an error to end the restore. ``behind``: memory has the store's content, and only later
        records are collected. ``gathering`` takes the ring records, so that :attr:`occupants` stays empty. ``start``: the first offset to
        read.
        """
        self.store = store
        self.gathering = gathering
        self._check = check
        self.count = 0
        state = store.state() if store else None
        self.meta: Meta | None = state.meta if state else None
        self.position = state.position if state else 0
        """Offset after the last applied meta record. The next restore applies later slots again."""
        self._known = state
        # If the record before the position is deleted, the following meta records are still compared.
        self._verified = state is None or start >= state.position
        self._epoch = epoch
        self._resident = resident
        self._behind = behind
        self.cleared = False
        """Whether a record was removed."""
        self.occupants: dict[bytes, bytes] = {}
        """Encoded ring values by key, because most are needed once. Used only with the index in memory."""
        self.hops: dict[bytes, bytes] = {}
        """Encoded hops records by key, because only the last one of each route is needed."""
        self._pending_hops: dict[bytes, bytes | None] = {}
        self._pending: dict[bytes, bytes | None] = {}
        """Records to write to RocksDB; None = tombstone."""
        self._newest = cast("dict[bytes, bytes | None]", self.occupants) if resident else self._pending
        """Decides whether a record applies. Without the slots in memory, RocksDB's own slots decide at the write."""

    def load(self) -> Steps[None]:
        """Load the content of the store before the first record."""
        if self.store is None:
            return
        if self.gathering is not None:
            yield from self.gathering.load()
            self.hops.update(self.store.hops())
            return
        yield from self.store.finding_chunks()
        if self._behind:
            return
        slots = self.store.slots() if self._resident else iter(())
        while some := list(islice(slots, STEP)):
            for key, value in some:
                occupant = self.occupants.get(key)
                if occupant is None or codec.is_newer(value, occupant):
                    self.occupants[key] = value
            yield
        self.hops.update(self.store.hops())

    def slots(self) -> list[Slot]:
        """Return the decoded occupants."""
        return [codec.decode_ring(*item) for item in self.occupants.items()]

    def consume(self, records: Sequence[Any]) -> None:
        """Apply fetched changelog records.

        Raises:
            UntrustedError: RocksDB's content differs from the changelog at its position.
            FormatError: A record has the format of a later version.
        """
        for record in records:
            key, value = record.key, record.value
            if not self._verified:
                self._verify(record)
            kind = key[:1]
            if kind == codec.KIND_RING:
                self._ring_record(key, value)
            elif kind == codec.KIND_META:
                self._meta_record(value)
                self.position = max(self.position, record.offset + 1)
            elif kind == codec.KIND_HOPS:
                self._hops_record(key, value)
            else:
                raise FormatError(
                    f"changelog record {record.offset} is of kind {kind.hex()}, unknown to this version"
                )
        self.count += len(records)
        self._flush_if_much()

    def _flush_if_much(self) -> None:
        most = FLUSH_RECORDS if self._resident else min(FLUSH_RECORDS, FLUSH_INDEXED)
        if len(self._pending) + (self.gathering.pending if self.gathering else 0) >= most:
            self._flush()

    def consuming(self, records: Sequence[Any]) -> Steps[None]:
        """Consume records in steps."""
        if isinstance(records, RawRecords):
            yield from self._consuming_raw(records)
            return
        for begin in range(0, len(records), STEP):
            self.consume(records[begin : begin + STEP])
            yield

    def _consuming_raw(self, records: RawRecords) -> Steps[None]:
        at = 0
        while at < len(records):
            next_one = at
            if self._verified and self.gathering is not None:
                next_one = self.gathering.apply_records(records.core, at, STEP)
                self.count += next_one - at
                self._flush_if_much()
            if next_one == at:
                self.consume([records[at]])
                next_one += 1
            at = next_one
            yield

    def _verify(self, record: Any) -> None:
        """Require that the first record is the one before RocksDB's position."""
        known = self._known
        if known is None:
            return
        if record.key == codec.META_KEY:
            self._compare(known.meta, codec.decode_meta(record.value))
        if record.offset != known.position - 1:
            raise UntrustedError(f"its last record, at {known.position - 1}, is no longer in the changelog")
        if record.key != codec.META_KEY or codec.decode_meta(record.value) != known.meta:
            raise UntrustedError(
                f"the changelog holds another record at {record.offset}: it lost its last records and was "
                "written again"
            )
        self._verified = True

    @staticmethod
    def _compare(known: Meta, meta: Meta) -> None:
        if meta.incarnation != known.incarnation:
            raise UntrustedError(f"incarnation {known.incarnation}, the changelog's is {meta.incarnation}")
        if meta.head < known.head:
            raise UntrustedError(f"its head {known.head} is above the changelog's {meta.head}")

    def _meta_record(self, value: bytes) -> None:
        meta = codec.decode_meta(value)
        self._check(meta)
        if self._known is not None:
            self._compare(self._known.meta, meta)
        self.meta = meta

    def _ring_record(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._newest.pop(key, None)
            self._pending[key] = None
            self.cleared = True
            return
        codec.check_ring(key, value)
        if self.gathering is not None:
            self.gathering.take_one(key, value)
            return
        occupant = self._newest.get(key)
        if occupant is not None and not codec.is_newer(value, occupant):
            return
        self._newest[key] = self._pending[key] = value

    def _hops_record(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.hops.pop(key, None)
            self.cleared = True
        else:
            codec.check_hops(key, value)
            self.hops[key] = value
        self._pending_hops[key] = value

    def finish(self) -> None:
        """Write the pending records.

        The position stays directly after the last record, a meta record, and before the marker of its transaction. The next opening finds
        that record again, and knows that the changelog is the same.
        Raises UntrustedError if the changelog did not contain the record before RocksDB's position.
        """
        if not self._verified:
            raise UntrustedError("the changelog no longer holds its last record")
        self._flush()

    def _flush(self) -> None:
        if self.store is None:
            self._pending.clear()
            self._pending_hops.clear()
            return
        # Compaction leaves only the last meta record. Until it comes, slots are written in small batches without one.
        state = self.meta and StoredState(self.meta, self.position, time.time(), indexed=not self._resident)
        self.store.write(self._epoch, state, self._fill)
        self._pending.clear()
        self._pending_hops.clear()

    def _fill(self, writes: Writes) -> None:
        if self.gathering is not None:
            self.gathering.fill(writes, self.meta)
        slots = {}
        for key, value in self._pending.items():
            if value is None:
                writes.delete_slot(key)
            else:
                slots[key] = value
        if not self._resident:
            slots = self._fill_index(writes, slots)
        writes.put_slots(slots.items())
        for key, value in self._pending_hops.items():
            if value is None:
                writes.delete_hops(key)
            else:
                writes.put_hops([(key, value)])

    def _fill_index(self, writes: Writes, slots: dict[bytes, bytes]) -> dict[bytes, bytes]:
        """Write index entries of newer slots; return the slots that are newer than those of the store."""
        assert self.store is not None  # noqa: S101 - called by _flush only
        occupants = dict(zip(slots, self.store.slots_of(list(slots)), strict=True))
        newer = {
            key: slot
            for key, value in slots.items()
            if (slot := codec.decode_ring(key, value)).sequence
            > (-1 if (occupant := occupants[key]) is None else occupant.sequence)
        }
        latest: dict[bytes, int] = {}
        for slot in newer.values():
            latest[slot.id] = max(slot.sequence, latest.get(slot.id, -1))
        gone = [each for key in newer if (each := occupants[key]) is not None and each.id not in latest]
        for occupant, indexed in zip(gone, self.store.sequences([item.id for item in gone]), strict=True):
            if indexed == occupant.sequence:
                writes.delete_index(occupant.id)
        for (encoded_id, sequence), indexed in zip(
            latest.items(), self.store.sequences(list(latest)), strict=True
        ):
            if indexed is None or indexed < sequence:
                writes.put_index(encoded_id, sequence)
        return {key: slots[key] for key in newer}
