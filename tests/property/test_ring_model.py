"""A lane's ring against a deque of the last N IDs, through restarts, lost disks, compaction and changes of size.

The runs are derived from the tests themselves: each run of the suite tries the same ones, and a failure prints the
steps that lead to it.
"""

import asyncio
import logging
import os
import random
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
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

from conf.settings import KafkaSettings
from tables import changelog, codec
from tables.codec import Origin
from tables.restore import ChangelogBounds
from tables.ring import Ring, Verdict
from tables.store import StaleEpochError
from tables.table import Change, LaneTable, Restored

ALPHABET = [codec.encode_id(b"%c" % letter) for letter in b"abcdefghijkl"]
DAY_S = 86_400.0
FLUSH_RECORDS = 5
"""RocksDB is written in pieces that small, so that a restore can be interrupted between them."""
FETCH_RECORDS = 4
MEMORY = next((each for each in ("/dev/shm",) if os.access(each, os.W_OK)), None)  # noqa: S108 - mkdtemp makes the folder in it
"""RocksDB is opened thousands of times: where there is a file system in memory, there."""

capacities = st.integers(0, 14)
batches = st.lists(st.sampled_from([None, *ALPHABET]), max_size=20)
seeds = st.integers(0, 2**16)


class Record(NamedTuple):
    """A changelog record as a consumer gives it."""

    offset: int
    key: bytes
    value: bytes | None


class Model:
    """What a ring is, said in the shortest way: the last N accepted IDs, in order."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.head = 0
        self.live: deque[tuple[int, bytes]] = deque()

    def accept(self, ids: Sequence[bytes | None]) -> tuple[list[Verdict], list[int | None]]:
        """Verdicts and originals of a batch that is committed."""
        verdicts, originals = [], []
        for each in ids:
            original = next((sequence for sequence, known in self.live if known == each), None)
            originals.append(original)
            if each is None or self.capacity == 0:
                verdicts.append(Verdict.UNCHECKED)
            elif original is not None:
                verdicts.append(Verdict.DUPLICATE)
            else:
                verdicts.append(Verdict.ACCEPTED)
                self.live.append((self.head, each))
                self.head += 1
                if len(self.live) > self.capacity:
                    self.live.popleft()
        return verdicts, originals

    def resized(self, capacity: int) -> "Model":
        """At another size: the newest stay; what is gone is gone."""
        model = Model(capacity)
        model.head = self.head
        model.live = deque(list(self.live)[-capacity:] if capacity else [])
        return model


@settings(derandomize=True, deadline=None, max_examples=500)
@given(capacity=st.integers(0, 8), stream=st.lists(batches, max_size=12))
def test_ring_is_the_last_n(capacity: int, stream: list[list[bytes | None]]) -> None:
    """Whatever comes in whatever batches, the ring says what the last N accepted IDs say."""
    ring, model = Ring(capacity), Model(capacity)
    for ids in stream:
        checked = ring.check(ids)
        assert ring.check(ids) == checked
        ring.apply(checked)

        assert (checked.verdicts, checked.originals) == model.accept(ids)
        assert (ring.head, len(ring), ring.low) == (model.head, len(model.live), model.head - len(model.live))


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
        """As of the last transaction: at its size."""
        self.model = self.committed
        """At the size of the running lane."""
        self.records: list[Record] = []
        self.end = 0
        self.next = 0
        self.fail_after: int | None = None
        self.in_step = False
        """The store reflects the whole changelog, and knows it."""
        self.patch = patch.object(changelog, "read", self.read)
        self.patch.start()

    def teardown(self) -> None:
        self.table.close()
        self.patch.stop()
        shutil.rmtree(self.folder)

    # -- what stands in for the broker -------------------------------------------------------------------------

    async def read(
        self,
        kafka: KafkaSettings,
        topic: str,
        partition: int,
        start: int,
        high_watermark: int,
        consume: Callable[[Sequence[Any]], None],
    ) -> int:
        """Pass the records on, a few at a time."""
        records = [each for each in self.records if start <= each.offset < high_watermark]
        for number, begin in enumerate(range(0, len(records), FETCH_RECORDS)):
            if number == self.fail_after:
                raise TimeoutError
            consume(records[begin : begin + FETCH_RECORDS])
        return high_watermark

    def append(self, slots: Sequence[tuple[bytes, bytes | None]], meta: codec.Meta) -> int:
        """A committed transaction; returns the position behind its last record."""
        for key, value in (*slots, (codec.META_KEY, codec.encode_meta(meta))):
            self.records.append(Record(self.end, key, value))
            self.end += 1
        self.end += 1  # the transaction's marker
        return self.end - 1

    # -- the lane ----------------------------------------------------------------------------------------------

    def make(self, capacity: int, *, resident: bool) -> None:
        """A new process: nothing is left but the disk and the changelog."""
        self.capacity, self.resident = capacity, resident
        self.table = LaneTable(self.disk, capacity, capacity if resident else -1)

    def open(self) -> Restored:
        """Open the table, and hold it against the model."""
        bounds = ChangelogBounds(0, self.end, DAY_S)
        self.epoch, restored = asyncio.run(self.table.open(KafkaSettings(), "changelog", 0, bounds))
        self.model = (
            self.committed
            if self.capacity == self.committed.capacity
            else self.committed.resized(self.capacity)
        )
        self.in_step = self.table.meta is not None
        return restored

    def restart(self, capacity: int | None = None, *, resident: bool | None = None) -> Restored:
        self.table.close()
        self.make(
            self.capacity if capacity is None else capacity,
            resident=self.resident if resident is None else resident,
        )
        return self.open()

    def bounds(self) -> tuple[int, int, int]:
        ring = self.table.ring
        return ring.head, ring.floor, ring.low

    def change(self, ids: list[bytes | None]) -> Change:
        """A batch up to its commit."""
        checked = self.table.check(ids)
        origins = [Origin(0, self.next + each, self.next) for each in range(len(checked.new_ids))]
        return self.table.record(checked, origins, {"orders": self.next + len(ids)}, {"orders": 4})

    def commit(self, change: Change, ids: list[bytes | None]) -> int:
        """Its commit, which is where the model follows."""
        self.next += len(ids)
        self.committed = self.model = self.model.resized(self.capacity)
        expected = self.model.accept(ids)

        assert (change.checked.verdicts, change.checked.originals) == expected
        return self.append(change.slots, change.meta)

    # -- what happens ------------------------------------------------------------------------------------------

    @initialize(capacity=capacities, data=st.data())
    def begin(self, capacity: int, data: st.DataObject) -> None:
        self.committed = Model(capacity)
        self.make(capacity, resident=data.draw(st.sampled_from(self.kinds)))
        self.open()

    @rule(ids=batches)
    def batch(self, ids: list[bytes | None]) -> None:
        change = self.change(ids)
        self.table.apply(self.epoch, change, self.commit(change, ids))

    @rule(ids=batches)
    def batch_of_unknown_position(self, ids: list[bytes | None]) -> None:
        """The broker did not say where it put the records."""
        change = self.change(ids)
        self.commit(change, ids)
        self.table.apply(self.epoch, change, 0)
        self.in_step = False

    @rule(count=st.integers(1, 9))
    def aborted_transaction(self, count: int) -> None:
        """Offsets that nobody will ever read."""
        self.end += count + 1

    @rule(ids=batches)
    def crash_before_commit(self, ids: list[bytes | None]) -> None:
        self.change(ids)
        self.restart()

    @rule(ids=batches, in_process=st.booleans())
    def crash_after_commit(self, ids: list[bytes | None], in_process: bool) -> None:
        """The store is left behind; with the process, or with the answer of the broker only."""
        self.commit(self.change(ids), ids)
        if in_process:
            self.open()
        else:
            self.restart()

    @rule(ids=batches)
    def late_write(self, ids: list[bytes | None]) -> None:
        """What was checked before the lane was opened again must not be written after."""
        change, epoch = self.change(ids), self.epoch
        self.open()
        with pytest.raises(StaleEpochError):
            self.table.apply(epoch, change, self.end + 1)

    @rule(data=st.data())
    def restart_in_order(self, data: st.DataObject) -> None:
        """A store that is up to date is trusted, and one record is read."""
        resident = data.draw(st.sampled_from(self.kinds))
        usable = self.in_step and (resident or not self.resident)
        before = self.bounds()
        restored = self.restart(resident=resident)

        assert self.bounds() == before
        if usable:
            assert (restored.reused, restored.records) == (True, 1)

    @rule(capacity=capacities)
    def resize(self, capacity: int) -> None:
        self.restart(capacity)

    @rule()
    def lose_disk(self) -> None:
        self.table.close()
        shutil.rmtree(self.disk)
        before = self.bounds()
        restored = self.restart()

        assert self.bounds() == before
        assert (restored.reused, restored.records) == (False, len(self.records))

    @rule(after=st.integers(0, 3), in_process=st.booleans())
    def interrupted_restore(self, after: int, in_process: bool) -> None:
        """A restore fails midway, having written a part; the next one goes on."""
        if not in_process:
            self.table.close()
            self.make(self.capacity, resident=self.resident)
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
        """The lane comes back to a worker that had it a while ago."""
        self.table.close()
        shutil.rmtree(self.disk)
        shutil.copytree(data.draw(st.sampled_from(self.copies)), self.disk)
        self.restart()

    @rule(seed=seeds)
    def compact(self, seed: int) -> None:
        """Any records that a later one of their key supersedes go, and tombstones with nothing before them."""
        source = random.Random(seed)
        share = source.choice([0.1, 0.5, 0.9, 1.0])
        last = {each.key: each.offset for each in self.records}
        self.records = [
            each for each in self.records if each.offset == last[each.key] or source.random() >= share
        ]
        first = {each.key: each.offset for each in reversed(self.records)}
        self.records = [
            each
            for each in self.records
            if each.value is not None or each.offset != first[each.key] or source.random() >= share
        ]

    @precondition(lambda self: self.table.meta is not None)
    @rule()
    def collect_garbage(self) -> None:
        """Tombstones for all that is dead: they free room and change no verdict."""
        meta = self.table.meta
        assert meta is not None
        low = max(meta.floor, meta.head - meta.capacity)
        latest = {each.key: each.value for each in self.records if each.key[:1] == codec.KIND_RING}
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
        ring, live = self.table.ring, self.model.live

        assert (ring.capacity, ring.head, len(ring)) == (self.capacity, self.model.head, len(live))
        assert ring.low == self.model.head - len(live)
        assert ring.low == max(ring.floor, ring.head - ring.capacity, 0)
        known = {each: sequence for sequence, each in live}
        for each in ALPHABET:
            checked = ring.check([each])
            assert checked.originals == [known.get(each)]
            expected = Verdict.DUPLICATE if each in known else Verdict.ACCEPTED
            assert checked.verdicts == [expected if self.capacity else Verdict.UNCHECKED]


class ResidentLane(Lane):
    """Index in memory."""

    kinds = (True,)


class StoredLane(Lane):
    """Index in RocksDB."""

    kinds = (False,)


class ChangingLane(Lane):
    """Now the one, now the other, as somebody changes resident_ids_max."""

    kinds = (True, False)


@pytest.mark.timeout(400)  # a failure takes a while until its steps are the fewest
@pytest.mark.parametrize("lane", [ResidentLane, StoredLane, ChangingLane])
def test_ring_comes_back(
    lane: type[Lane], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Restarts, crashes, lost and old disks, compaction and changes of size: the ring is the last N, no more, no less."""
    monkeypatch.setattr("tables.restore.FLUSH_RECORDS", FLUSH_RECORDS)
    caplog.set_level(logging.ERROR, "ringfence")
    run_state_machine_as_test(
        lane,
        settings=settings(
            derandomize=True,
            deadline=None,
            max_examples=40,
            stateful_step_count=50,
            suppress_health_check=list(HealthCheck),
        ),
    )
