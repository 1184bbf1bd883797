"""A lane's ring against a deque of the last N IDs, through all that may befall it.

Restarts, crashes, lost and old disks, a changelog that loses its tail, compaction, changes of size, of age and of persistence, clearing.
Batches hold plain messages, or transactions with IDs of two addresses.
"""

import asyncio
import logging
import os
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import native
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.readers.log_reader import LogReader, Take
from tables import codec
from tables.change import Change, Restored, TableOptions
from tables.codec import Chunk, Origin
from tables.native_index import rebuilding_index
from tables.restore import ChangelogBounds, Restore
from tables.ring import Ring, Verdict
from tables.rocksdb.errors import StaleEpochError
from tables.table import LaneTable
from tests.property import examples
from tests.property.ring_model import ALPHABET, Batch, Live, Model, ages, batches, capacities, promises
from tests.support.at_once import at_once
from tests.support.records.served_log import raw

DAY_S = 86_400.0
FLUSH_RECORDS = 5
"""Records that RocksDB gets at a time: few, so that a restore can be interrupted between them."""
FETCH_RECORDS = 4
TOMBSTONES_MAX = 3
"""Most tombstones in one transaction: few, so that the slots of an earlier size go in several."""
MEMORY = next((name for name in ("/dev/shm",) if os.access(name, os.W_OK)), None)  # noqa: S108 - mkdtemp makes the folder in it
"""RocksDB is opened thousands of times: where there is a file system in memory, there."""


seeds = st.integers(0, 2**16)


class Record(NamedTuple):
    """A changelog record as a consumer gives it."""

    offset: int
    key: bytes
    value: bytes | None


@settings(max_examples=examples(500))
@given(capacity=st.integers(0, 8), age=ages, stream=st.lists(batches, max_size=12), data=st.data())
def test_ring_is_the_last_n(capacity: int, age: int, stream: list[Batch], data: st.DataObject) -> None:
    """The ring gives the verdicts of the last N accepted IDs that are young enough, however messages are batched."""
    promise, now = data.draw(promises(capacity)), 0
    native_index = promise is not None and not age and native.core is not None and data.draw(st.booleans())
    timed = TableOptions(capacity, capacity, promise=promise)
    index = at_once(rebuilding_index((), 0, 0, timed)) if native_index else None
    ring = Ring(capacity, index=index, max_age_ms=age, promise=promise)
    model = Model(capacity, age, promise=promise)
    for batch in stream:
        times = batch.times(now)
        checked = batch.check(ring, now)
        assert batch.check(ring, now) == checked
        ring.apply(checked)

        assert (checked.verdicts, checked.originals) == model.accept(batch.units, times)
        assert (ring.head, len(ring), ring.low) == (model.head, len(model.live), model.head - len(model.live))
        assert ring.promise == model.promise
        if batch.several:
            assert list(zip(checked.owners or [], checked.new_ids, strict=True)) == [
                (number, id_)
                for number, (unit, verdict) in enumerate(zip(batch.units, checked.verdicts, strict=True))
                if verdict is Verdict.ACCEPTED
                for id_ in dict.fromkeys(unit)
            ]
        now = max([now, *times])


class Moment(NamedTuple):
    """The lane right after a transaction."""

    end: int
    committed: Model


class Lane(RuleBasedStateMachine):
    """A lane's table, driven through all that may befall it; its changelog is a list.

    The changelog is read by the code that a lane runs, save for the network: a consumer is replaced by that list.
    A change of size takes hold with the first transaction after it, which is what makes it known to the changelog.
    """

    kinds: ClassVar[tuple[bool, ...]]
    """Whether the index may be resident."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="ringfence-", dir=MEMORY))
        self.disk = self.folder / "orders-0"
        self.copies: list[Path] = []
        self.committed = Model(0)
        """Model as of the last transaction, at its size."""
        self.model = self.committed
        """Model as of the running lane."""
        self.records: list[Record] = []
        self.end = 0
        self.moments: list[Moment] = []
        """Earlier states to which the changelog may be cut back: those since the last compaction."""
        self.next = 0
        self.now = 1_000
        self.incarnation = ""
        self.fail_after: int | None = None
        self.in_step = False
        """The store reflects the whole changelog, and knows it."""
        self.patches = ExitStack()
        self.patches.enter_context(patch.object(LogReader, "read_range", self.read))

    def teardown(self) -> None:
        self.table.close()
        self.patches.close()
        shutil.rmtree(self.folder)

    # -- what stands in for the broker -------------------------------------------------------------------------

    async def read(
        self,
        topic: str,
        partition: int,
        start: int,
        high_watermark: int,
        consume: Callable[[Sequence[Any]], Awaitable[None]],
        take: Take | None = None,
    ) -> int:
        """Pass the records on, a few at a time; where they may be taken as the core reads them, most of them so."""
        records = [record for record in self.records if start <= record.offset < high_watermark]
        for number, begin in enumerate(range(0, len(records), FETCH_RECORDS)):
            if number == self.fail_after:
                raise TimeoutError
            some = records[begin : begin + FETCH_RECORDS]
            await consume(some if take is None or number % 3 == 1 else raw(some))
        return high_watermark

    def append(self, slots: Sequence[tuple[bytes, bytes | None]], meta: codec.Meta) -> int:
        self.incarnation = self.incarnation or meta.incarnation
        assert meta.incarnation == self.incarnation
        for key, value in (*slots, (codec.META_KEY, codec.encode_meta(meta))):
            self.records.append(Record(self.end, key, value))
            self.end += 1
        self.end += 1  # the transaction's marker
        self.moments.append(Moment(self.end, self.committed))
        return self.end - 1

    # -- the lane ----------------------------------------------------------------------------------------------

    def make(self, options: TableOptions) -> None:
        """Start a new process: nothing is left but the disk and the changelog."""
        self.options = options
        self.table = LaneTable(self.disk, options)

    def choose(self, capacity: int, max_age: int, data: st.DataObject, *, durable: bool) -> TableOptions:
        resident = data.draw(st.sampled_from(self.kinds))
        promise = data.draw(promises(capacity)) if durable else None
        return TableOptions(capacity, capacity if resident else -1, max_age, durable, promise=promise)

    @property
    def resident(self) -> bool:
        return self.options.resident_ids_max >= 0 or not self.options.persistent

    def open(self) -> Restored:
        bounds = ChangelogBounds(0, self.end, DAY_S)
        self.epoch, restored = asyncio.run(
            self.table.open(LogReader(KafkaSettings()), "changelog", 0, bounds)
        )
        options = self.options
        self.model = self.committed.reopened(
            options.capacity, options.max_age_ms, durable=options.persistent, promise=options.promise
        )
        self.in_step = self.table.meta is not None
        return restored

    def restart(self, options: TableOptions | None = None) -> Restored:
        self.table.close()
        self.make(options or self.options)
        return self.open()

    def bounds(self) -> tuple[int, int, int]:
        ring = self.table.ring
        return ring.head, ring.floor, ring.low

    def change(self, batch: Batch) -> Change:
        checked = batch.check(self.table.ring, self.now)
        owners = range(len(checked.new_ids)) if checked.owners is None else checked.owners
        origins = [
            Origin(0, self.next + owner, time) for owner, time in zip(owners, checked.new_times, strict=True)
        ]
        change = self.table.record(
            checked, origins, {"orders": self.next + len(batch.units)}, {"orders": 4}, {"orders": "topic"}
        )
        if batch.several or not (self.resident and self.options.persistent and len(batch.units) % 2):
            return change
        # As the core has them: under one key in RocksDB.
        return change._replace(
            slots=Chunk.from_values(change.meta.capacity, [value for _, value in change.slots])
        )

    def commit(self, change: Change, batch: Batch) -> int:
        times = batch.times(self.now)
        self.now, self.next = max([self.now, *times]), self.next + len(batch.units)
        self.committed = self.model = self.model.copy()
        expected = self.model.accept(batch.units, times)

        assert (change.checked.verdicts, change.checked.originals) == expected
        return self.append(self.table.persisted(change), change.meta)

    # -- what happens ------------------------------------------------------------------------------------------

    @initialize(capacity=capacities, max_age=ages, data=st.data())
    def begin(self, capacity: int, max_age: int, data: st.DataObject) -> None:
        self.make(self.choose(capacity, max_age, data, durable=True))
        self.open()

    @rule(batch=batches, reported=st.sampled_from([True, True, False]))
    def batch(self, batch: Batch, reported: bool) -> None:
        """Commit a batch, of which the broker may report no position."""
        change = self.change(batch)
        position = self.commit(change, batch)
        self.table.apply(self.epoch, change, position if reported else 0)
        self.in_step = reported

    @rule(count=st.integers(1, 9))
    def aborted_transaction(self, count: int) -> None:
        """Add offsets of an aborted transaction, which nobody will ever read."""
        self.end += count + 1

    @rule(batch=batches)
    def crash_before_commit(self, batch: Batch) -> None:
        self.change(batch)
        self.restart()

    @rule(batch=batches, in_process=st.booleans())
    def crash_after_commit(self, batch: Batch, in_process: bool) -> None:
        """The store is left behind by one transaction, and reads that one and no more."""
        change, in_step = self.change(batch), self.in_step
        self.commit(change, batch)
        restored = self.open() if in_process else self.restart()

        if in_step:
            written = len(self.table.persisted(change))
            assert (restored.reused, restored.records) == (True, 1 + written + 1)

    @rule(batch=batches)
    def late_write(self, batch: Batch) -> None:
        """A change that was checked before the lane opened again must not be written after."""
        change, epoch = self.change(batch), self.epoch
        self.open()
        with pytest.raises(StaleEpochError):
            self.table.apply(epoch, change, self.end + 1)

    @rule(data=st.data())
    def restart_in_order(self, data: st.DataObject) -> None:
        indexed, before = not self.resident, self.bounds()
        options = self.choose(
            self.options.capacity, self.options.max_age_ms, data, durable=self.options.persistent
        )
        in_step = self.in_step
        restored = self.restart(options)

        if options.persistent:
            assert self.bounds() == before
        if in_step and (indexed or self.resident):
            assert (restored.reused, restored.records) == (True, 1)

    @rule(capacity=capacities, data=st.data())
    def resize(self, capacity: int, data: st.DataObject) -> None:
        self.restart(self.choose(capacity, self.options.max_age_ms, data, durable=self.options.persistent))

    @rule(max_age=ages, durable=st.sampled_from([True, True, False]), data=st.data())
    def reconfigure(self, max_age: int, durable: bool, data: st.DataObject) -> None:
        self.restart(self.choose(self.options.capacity, max_age, data, durable=durable))

    @precondition(lambda self: self.table.meta is not None)
    @rule(in_process=st.booleans())
    def clear(self, in_process: bool) -> None:
        """Somebody else writes the floor, as the lane, which is fenced and opens again."""
        restore = Restore(None, 0, resident=True)
        restore.consume(self.records)
        assert restore.meta is not None
        self.committed = self.committed.copy()
        self.committed.live.clear()
        self.append([], restore.meta._replace(floor=restore.meta.head))
        if in_process:
            self.open()
        else:
            self.restart()
        assert len(self.table.ring) == 0

    @rule()
    def lose_disk(self) -> None:
        self.table.close()
        shutil.rmtree(self.disk)
        before = self.bounds()
        restored = self.restart()

        if self.options.persistent:
            assert self.bounds() == before
        assert (restored.reused, restored.records) == (False, len(self.records))

    @rule(after=st.integers(0, 3), in_process=st.booleans())
    def interrupted_restore(self, after: int, in_process: bool) -> None:
        """A restore fails midway, having written a part; the next one goes on."""
        if not in_process:
            self.table.close()
            self.make(self.options)
        self.fail_after = after
        try:
            self.open()
        except TimeoutError:
            self.fail_after = None
            self.open()
        self.fail_after = None

    @precondition(lambda self: len(self.copies) < 4)
    @rule()
    def keep_a_copy_of_the_disk(self) -> None:
        self.table.close()
        self.copies.append(shutil.copytree(self.disk, self.folder / f"copy-{len(self.copies)}"))
        self.restart()

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def find_an_old_disk(self, data: st.DataObject) -> None:
        """The lane comes back to a worker that had it earlier, with that worker's old disk."""
        self.table.close()
        shutil.rmtree(self.disk)
        shutil.copytree(data.draw(st.sampled_from(self.copies)), self.disk)
        self.restart()

    @precondition(lambda self: self.moments)
    @rule(data=st.data(), regrown=batches)
    def lose_the_tail(self, data: st.DataObject, regrown: Batch) -> None:
        """The changelog loses transactions, and grows again before the disk that saw them is found.

        The input goes on meanwhile: its offsets do not come again.
        """
        self.table.close()
        former = self.disk.rename(self.folder / "former")
        self.end, self.committed = data.draw(st.sampled_from(self.moments))
        self.records = [record for record in self.records if record.offset < self.end]
        self.moments = [moment for moment in self.moments if moment.end <= self.end]
        self.restart()
        change = self.change(regrown)
        self.commit(change, regrown)
        self.table.close()
        shutil.rmtree(self.disk)
        former.rename(self.disk)
        self.restart()

    @rule(seed=seeds)
    def compact(self, seed: int) -> None:
        """Remove any records that a later one of their key supersedes, and tombstones with nothing before them."""
        source = random.Random(seed)
        share = source.choice([0.1, 0.5, 0.9, 1.0])
        last = {record.key: record.offset for record in self.records}
        self.records = [
            record for record in self.records if record.offset == last[record.key] or source.random() >= share
        ]
        first = {record.key: record.offset for record in reversed(self.records)}
        self.records = [
            record
            for record in self.records
            if record.value is not None or record.offset != first[record.key] or source.random() >= share
        ]
        self.moments = []

    @precondition(lambda self: self.table.meta is not None)
    @rule()
    def collect_garbage(self) -> None:
        """Write tombstones for all that is dead: they free room and change no verdict."""
        meta = self.table.meta
        assert meta is not None
        low = max(meta.floor, meta.head - meta.capacity)
        latest = {record.key: record.value for record in self.records if record.key[:1] == codec.KIND_RING}
        dead: list[tuple[bytes, bytes | None]] = [
            (key, None)
            for key, value in latest.items()
            if value is not None and codec.decode_ring(key, value).sequence < low
        ]
        self.append(dead, meta)
        self.open()

    # -- what holds at any time --------------------------------------------------------------------------------

    @invariant()
    def says_what_the_model_says(self) -> None:
        """The ring's bounds, and its verdict for every ID at several times."""
        ring, model = self.table.ring, self.model

        assert (ring.capacity, ring.head, len(ring)) == (model.capacity, model.head, len(model.live))
        assert ring.low == model.head - len(model.live) == max(ring.floor, ring.head - ring.capacity, 0)
        assert ring.promise == model.promise
        aged = model.max_age or model.promise
        for time in (self.now - 5, self.now, self.now + 10) if aged else (self.now,):
            for data in ALPHABET:
                checked = ring.check([data], [time])
                assert (*checked.verdicts, *checked.originals) == model.verdict([data], time)

    @invariant()
    def finds_every_original(self) -> None:
        """Each live ID's slot is found by its sequence, whatever the size under which it was written."""
        found = self.table.find([item.sequence for item in self.model.live])
        assert [
            None if slot is None else Live(slot.sequence, slot.id, slot.origin.timestamp) for slot in found
        ] == list(self.model.live)

    @invariant()
    def changelog_suffices(self) -> None:
        """The changelog alone gives all that is committed, and slots of known sizes only."""
        restore = Restore(None, 0, resident=True)
        restore.consume(self.records)
        meta = restore.meta
        if meta is None:
            assert self.committed.head == 0
            return
        low = max(meta.floor, meta.head - meta.capacity, 0)
        live = sorted(
            Live(slot.sequence, slot.id, slot.origin.timestamp)
            for slot in restore.slots()
            if low <= slot.sequence < meta.head
        )
        assert live == (list(self.committed.live) if self.committed.durable else [])
        known = {meta.capacity, *(item[0] for item in meta.older)}
        assert {slot.capacity for slot in restore.slots()} <= known


@pytest.mark.parametrize("kinds", [(True,), (False,), (True, False)], ids=["resident", "stored", "changing"])
def test_ring_comes_back(
    kinds: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A lane's ring is exactly the last N committed IDs after any failure, wherever its index is and moves."""
    monkeypatch.setattr("tables.restore.FLUSH_RECORDS", FLUSH_RECORDS)
    monkeypatch.setattr("tables.resize.TOMBSTONES_MAX", TOMBSTONES_MAX)
    caplog.set_level(logging.ERROR, "ringfence")
    run_state_machine_as_test(
        type("KindsOfLane", (Lane,), {"kinds": kinds}),
        settings=settings(
            max_examples=examples(50), stateful_step_count=50, suppress_health_check=list(HealthCheck)
        ),
    )
