import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record import MemoryRecords

from agents.batch import FetchedBatch
from agents.emitter import Emitter, changelog_batches
from tables import codec
from tables.codec import Meta, Origin
from tables.producer import Outgoing
from tables.ring import Checked, Verdict
from tables.table import Change

ACCEPTED, DUPLICATE, UNCHECKED = Verdict.ACCEPTED, Verdict.DUPLICATE, Verdict.UNCHECKED
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Given:
    """A consumed record."""

    offset: int
    key: bytes | None = b"group"
    value: bytes | None = b"value"
    headers: Headers = ()
    timestamp: int = 1_700_000_000_123


class Written(NamedTuple):
    """A record as the broker would store it."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


def _builders(size: int = 512 * 1024) -> Callable[[], Any]:
    """Makes aiokafka's own builders, as the transactional producer does."""
    return lambda: BatchBuilder(size, 0, is_transactional=1)


def _read(batches: Sequence[Outgoing]) -> list[Written]:
    """What stands in these batches, in order."""
    found: list[Written] = []
    for each in batches:
        records = MemoryRecords(bytes(each.builder._build()))
        while (batch := records.next_batch()) is not None:
            found.extend(Written(r.key, r.value, list(r.headers), r.timestamp) for r in batch)
    return found


def _emit(
    emitter: Emitter,
    records: Sequence[Given],
    verdicts: Sequence[Verdict] | None = None,
    new_builder: Callable[[], Any] | None = None,
) -> list[Outgoing]:
    end = records[-1].offset + 1 if records else 0
    batch = FetchedBatch("orders", 3, 0, end, records, 0)
    verdicts = [ACCEPTED] * len(records) if verdicts is None else verdicts
    return emitter.emit(batch, records, verdicts, new_builder or _builders())


def _partition(key: bytes, partitions: int) -> int:
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


# -- accepted messages ----------------------------------------------------------------------------------------------


def test_unchanged() -> None:
    """Key, value, headers in their order with repeats and nulls, and timestamp pass as they are; the source is added."""
    headers: Headers = [("b", b"1"), ("_AMQ_DUPL_ID", b"id"), ("a", None), ("b", b""), ("ä", b"\xff")]
    record = Given(77, b"g\x00\xff", bytes(range(256)), headers, timestamp=1_234_567_890_123)

    (written,) = _read(_emit(Emitter("orders.accepted", 4), [record]))

    expected = Written(
        b"g\x00\xff", bytes(range(256)), [*headers, ("_RF_SOURCE", b"orders/3/77")], 1_234_567_890_123
    )
    assert written == expected


@pytest.mark.parametrize(
    ("key", "value"), [(b"", b""), (b"k", None), (None, b"v"), (None, None), (b"k", b"")]
)
def test_null_and_empty(key: bytes | None, value: bytes | None) -> None:
    """Null stays null and empty stays empty, in key and value; a message without headers gets the source only."""
    (written,) = _read(_emit(Emitter("orders.accepted", 4), [Given(0, key, value)]))

    assert (written.key, written.value) == (key, value)
    assert written.headers == [("_RF_SOURCE", b"orders/3/0")]


@pytest.mark.parametrize("timestamps", [(0, 0), (5, 3, 9, 1), (1_700_000_000_000, 1, 2**41)])
def test_timestamps(timestamps: tuple[int, ...]) -> None:
    """Timestamps stay, also when they go backwards or are zero."""
    records = [Given(offset, timestamp=each) for offset, each in enumerate(timestamps)]

    assert tuple(each.timestamp for each in _read(_emit(Emitter("o", 1), records))) == timestamps


def test_source_is_replaced() -> None:
    """A source that is already there, in any number, gives way to the true one, which stands last."""
    headers: Headers = [("_RF_SOURCE", b"forged/0/1"), ("a", b"1"), ("_RF_SOURCE", None)]

    (written,) = _read(_emit(Emitter("orders.accepted", 4), [Given(5, headers=headers)]))

    assert written.headers == [("a", b"1"), ("_RF_SOURCE", b"orders/3/5")]


def test_input_is_left_alone() -> None:
    """The record that came in is not changed: a kept batch is emitted again after a failure."""
    headers: list[tuple[str, bytes | None]] = [("a", b"1")]
    record = Given(5, headers=headers)
    emitter = Emitter("orders.accepted", 4)

    first, second = _read(_emit(emitter, [record])), _read(_emit(emitter, [record]))

    assert headers == [("a", b"1")]
    assert first == second


def test_only_duplicates_are_left_out() -> None:
    """What was accepted or not checked passes, in order; duplicates do not."""
    records = [Given(each) for each in range(5)]

    written = _read(_emit(Emitter("o", 1), records, [ACCEPTED, DUPLICATE, UNCHECKED, DUPLICATE, ACCEPTED]))

    assert [each.headers[-1][1] for each in written] == [b"orders/3/0", b"orders/3/2", b"orders/3/4"]


@pytest.mark.parametrize("count", [0, 3])
def test_nothing_to_write(count: int) -> None:
    """Without accepted messages there is no batch: an empty one would be refused."""
    assert _emit(Emitter("o", 4), [Given(each) for each in range(count)], [DUPLICATE] * count) == []


def test_a_verdict_a_record() -> None:
    """Verdicts and records that do not match are a programmer error and never cut short."""
    with pytest.raises(ValueError, match="zip"):
        _emit(Emitter("o", 4), [Given(0), Given(1)], [ACCEPTED])


def test_partitions_and_order() -> None:
    """Each group goes to its home in the accepted topic, and within a partition the order of arrival stays."""
    source = random.Random(3)
    records = [Given(each, key=b"group-%d" % source.randint(0, 30)) for each in range(2_000)]

    batches = _emit(Emitter("orders.accepted", 8), records)

    assert {each.topic for each in batches} == {"orders.accepted"}
    assert sorted(each.partition for each in batches) == list(range(8))
    for batch in batches:
        mine = [each.offset for each in records if _partition(each.key or b"", 8) == batch.partition]
        sources = [each.headers[-1][1] for each in _read([batch])]
        assert sources == [b"orders/3/%d" % offset for offset in mine]


def test_overflow_goes_on_in_order() -> None:
    """A full batch is followed by another of its partition; nothing is lost, doubled or out of order."""
    source = random.Random(4)
    records = [
        Given(each, key=b"%d" % source.randint(0, 9), value=source.randbytes(source.randint(0, 400)))
        for each in range(500)
    ]
    batches = _emit(Emitter("o", 3), records, new_builder=_builders(2_048))

    assert len(batches) > 30
    assert all(each.builder.size() <= 2_048 for each in batches)
    for partition in range(3):
        written = _read([each for each in batches if each.partition == partition])
        mine = [each for each in records if _partition(each.key or b"", 3) == partition]
        assert [each.headers[-1][1] for each in written] == [b"orders/3/%d" % each.offset for each in mine]
        assert [(each.key, each.value) for each in written] == [(each.key, each.value) for each in mine]


def test_large_record_goes_alone() -> None:
    """A record larger than a batch goes in one of its own, between its neighbours."""
    records = [Given(0), Given(1, value=b"x" * 5_000), Given(2)]

    batches = _emit(Emitter("o", 1), records, new_builder=_builders(1_000))

    assert [each.builder.record_count() for each in batches] == [1, 1, 1]
    assert [each.value for each in _read(batches)] == [b"value", b"x" * 5_000, b"value"]


def test_null_keys_spread_by_batch() -> None:
    """Records without group go to one partition a batch, and from batch to batch to each in turn."""
    emitter = Emitter("o", 3)
    chosen = []
    for _ in range(7):
        batches = _emit(emitter, [Given(each, key=None) for each in range(10)])
        assert [each.builder.record_count() for each in batches] == [10]
        chosen.append(batches[0].partition)

    assert chosen[3:] == chosen[:4]
    assert sorted(chosen[:3]) == [0, 1, 2]


def test_null_keys_beside_groups() -> None:
    """Records without group do not move groups: those stay at home in every batch."""
    emitter = Emitter("o", 3)
    for _ in range(3):
        batches = _emit(emitter, [Given(0, key=None), Given(1, key=b"g"), Given(2, key=None)])
        homes = [each.partition for each in batches for written in _read([each]) if written.key == b"g"]

        assert homes == [_partition(b"g", 3)]


# -- the changelog --------------------------------------------------------------------------------------------------


def _change(count: int) -> Change:
    ids = [codec.encode_id(b"id-%d" % each) for each in range(count)]
    slots = [
        (codec.ring_key(500, each), codec.ring_value(each, ids[each], Origin(3, each, 1)))
        for each in range(count)
    ]
    meta = Meta(500, count, 0, {"orders": 9}, {"orders": 4}, "0011")
    return Change(Checked([ACCEPTED] * count, [None] * count, 0, ids), slots, meta)


@pytest.mark.parametrize("size", [512 * 1024, 300])
def test_changelog(size: int) -> None:
    """All slots in order, then the meta record that closes the transaction, in as many batches as it takes."""
    change = _change(40)

    batches = changelog_batches("changelog", 3, change, _builders(size))

    assert {(each.topic, each.partition) for each in batches} == {("changelog", 3)}
    assert (len(batches) > 5) == (size == 300)
    meta = (codec.META_KEY, codec.encode_meta(change.meta))
    written = _read(batches)
    assert [(each.key, each.value) for each in written] == [*change.slots, meta]
    assert {tuple(each.headers) for each in written} == {()}


def test_changelog_without_new_ids() -> None:
    """A batch of duplicates writes its meta record: the input offset has moved."""
    change = _change(0)

    (batch,) = changelog_batches("changelog", 0, change, _builders())

    expected = [(codec.META_KEY, codec.encode_meta(change.meta))]
    assert [(each.key, each.value) for each in _read([batch])] == expected


def test_changelog_has_the_time_of_writing() -> None:
    """Changelog records are as old as their writing, however old the messages are."""
    before = int(time.time() * 1000)

    written = _read(changelog_batches("changelog", 0, _change(3), _builders()))

    assert all(before <= each.timestamp <= time.time() * 1000 for each in written)
