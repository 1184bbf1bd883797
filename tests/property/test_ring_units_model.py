"""A lane's ring with transactions among plain messages, against a deque of the last N IDs, through all that may befall it.

Restarts, crashes, lost and old disks, compaction, changes of size, age and persistence, clearing: as
:mod:`tests.property.test_ring_model` has them, with messages of several IDs between those of one, of two addresses.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from ringfence_kafka.protocol import stored_ids
from tables.change import Change
from tables.codec import Origin
from tables.ring import Ring, Verdict
from tests.property import examples
from tests.property import test_ring_model as plain
from tests.property.test_ring_model import ALPHABET, Batch, Lane, Live, Model, ages, promises

OWN = ALPHABET[:6]
FOREIGN = [stored_ids.foreign_id("payments", data) for data in OWN]
"""The same IDs, of another address: not one of them is one of ours."""


class Units(NamedTuple):
    """Messages in order, each with all its IDs."""

    units: list[list[bytes]]
    ahead: int
    apart: int

    @property
    def ids(self) -> list[list[bytes]]:
        return self.units

    def times(self, now: int) -> list[int]:
        return [now + self.ahead + self.apart * number for number in range(len(self.units))]


some_ids = st.sampled_from([*OWN, *FOREIGN])
unit_batches = st.builds(
    Units,
    units=st.lists(
        st.one_of(st.lists(some_ids, max_size=1), st.lists(some_ids, min_size=2, max_size=16)), max_size=10
    ),
    ahead=st.integers(-6, 12),
    apart=st.integers(-1, 2),
)


def accept(
    model: Model, units: Sequence[Sequence[bytes]], times: Sequence[int]
) -> tuple[list[Verdict], list[int | None]]:
    """Return the verdict of each message: one known ID makes a duplicate, and then none of its IDs is added."""
    verdicts: list[Verdict] = []
    originals: list[int | None] = []
    begin, newest, gone = model.head, model.promise.newest_ms if model.promise else 0, list[Live]()
    for unit, time in zip(units, times, strict=True):
        known = [model.original(data, time) for data in unit if model.capacity]
        original = next((item for item in known if item is not None), None)
        originals.append(original)
        if original is not None:
            verdicts.append(Verdict.DUPLICATE)
            continue
        verdicts.append(Verdict.ACCEPTED if known else Verdict.UNCHECKED)
        for number, data in enumerate(unit if known else ()):
            if data not in unit[:number]:
                model.live.append(Live(model.head, data, time))
                model.head += 1
                newest = max(newest, time)
        while len(model.live) > model.capacity:
            gone.append(model.live.popleft())
    if model.promise is not None:
        model.age(begin, newest, gone)
    return verdicts, originals


@settings(max_examples=examples(400))
@given(capacity=st.integers(0, 8), age=ages, stream=st.lists(unit_batches, max_size=10), data=st.data())
def test_ring_is_the_last_n(capacity: int, age: int, stream: list[Units], data: st.DataObject) -> None:
    """The ring gives the verdicts of the last N accepted IDs, however messages are batched, and when asked twice."""
    promise, now = data.draw(promises(capacity)), 0
    ring = Ring(capacity, max_age_ms=age, promise=promise)
    model = Model(capacity, age, promise=promise)
    for batch in stream:
        times = batch.times(now)
        checked = ring.check_units(batch.units, times)
        assert ring.check_units(batch.units, times) == checked
        ring.apply(checked)

        assert (checked.verdicts, checked.originals) == accept(model, batch.units, times)
        assert (ring.head, len(ring), ring.low) == (model.head, len(model.live), model.head - len(model.live))
        assert ring.promise == model.promise
        _owned(checked.owners or [], checked.new_ids, batch.units, checked.verdicts)
        now = max([now, *times])


def _owned(
    owners: Sequence[int],
    new_ids: Sequence[bytes],
    units: Sequence[Sequence[bytes]],
    verdicts: Sequence[Verdict],
) -> None:
    """Require that each new ID names its message: every ID of every accepted message, once, in order."""
    expected = [
        (number, fromkey)
        for number, (unit, verdict) in enumerate(zip(units, verdicts, strict=True))
        if verdict is Verdict.ACCEPTED
        for fromkey in dict.fromkeys(unit)
    ]
    assert list(zip(owners, new_ids, strict=True)) == expected


class TransactionLane(Lane):
    """The lane of the other model, which takes batches of transactions as well."""

    kinds = (True, False)

    def change(self, batch: Batch) -> Change:
        found: Any = batch
        if not isinstance(found, Units):
            return super().change(batch)
        times = found.times(self.now)
        checked = self.table.check_units(found.units, times)
        assert checked.owners is not None
        origins = [Origin(0, self.next + owner, times[owner]) for owner in checked.owners]
        return self.table.record(
            checked, origins, {"orders": self.next + len(times)}, {"orders": 4}, {"orders": "topic"}
        )

    def commit(self, change: Change, batch: Batch) -> int:
        found: Any = batch
        if not isinstance(found, Units):
            return super().commit(change, batch)
        times = found.times(self.now)
        self.now, self.next = max([self.now, *times]), self.next + len(times)
        self.committed = self.model = self.model.copy()

        assert (change.checked.verdicts, change.checked.originals) == accept(self.model, found.units, times)
        return self.append(self.table.persisted(change), change.meta)

    @rule(batch=unit_batches)
    def transactions(self, batch: Units) -> None:
        found = cast("Batch", batch)
        change = self.change(found)
        self.table.apply(self.epoch, change, self.commit(change, found))
        self.in_step = True

    @rule(batch=unit_batches)
    def crash_before_commit_of_transactions(self, batch: Units) -> None:
        self.change(cast("Batch", batch))
        self.restart()

    @rule(batch=unit_batches, in_process=st.booleans())
    def crash_after_commit_of_transactions(self, batch: Units, in_process: bool) -> None:
        """RocksDB is left behind by one transaction; the changelog has all of its IDs, or none."""
        change = self.change(cast("Batch", batch))
        self.commit(change, cast("Batch", batch))
        if in_process:
            self.open()
        else:
            self.restart()

    @invariant()
    def keeps_addresses_apart(self) -> None:
        """The ring's verdict for the IDs of the other address is the model's."""
        ring, model = self.table.ring, self.model
        for data in FOREIGN:
            checked = ring.check_units([[data]], [self.now])
            assert checked.originals == [model.original(data, self.now) if model.capacity else None]


def test_ring_comes_back(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A lane's ring is the last N IDs of the committed transactions after any failure of the lane."""
    monkeypatch.setattr("tables.restore.FLUSH_RECORDS", plain.FLUSH_RECORDS)
    monkeypatch.setattr("tables.resize.TOMBSTONES_MAX", plain.TOMBSTONES_MAX)
    caplog.set_level(logging.ERROR, "ringfence")
    run_state_machine_as_test(
        TransactionLane,
        settings=settings(
            max_examples=examples(40),
            stateful_step_count=50,
            suppress_health_check=list(HealthCheck),
        ),
    )
