import json
import random
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record import MemoryRecords

from agents.decision.decide import Outcome
from agents.decision.item import Item
from agents.output.build import Emitter
from agents.output.changelog import changelog_batches
from agents.output.topic_batches import Outputs, TooLargeError
from ringfence_kafka.config.load import validate
from ringfence_kafka.errors import TopicError
from ringfence_kafka.producer.transactional import Outgoing
from ringfence_kafka.protocol import stored_ids
from tables import codec
from tables.change import Change, TableOptions
from tables.codec import Meta, Origin
from tables.ring import Checked, Verdict
from tables.table import LaneTable
from tests.support.kafka import at_home

ACCEPTED, DUPLICATE, UNCHECKED = Verdict.ACCEPTED, Verdict.DUPLICATE, Verdict.UNCHECKED
Headers = Sequence[tuple[str, bytes | None]]
FORWARD = "ringfence-orders-forward"


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
    """Make aiokafka's own builders, as the transactional producer does."""
    return lambda: BatchBuilder(size, 0, is_transactional=1)


def _read(batches: Sequence[Outgoing]) -> list[Written]:
    """Return the records of these batches in order."""
    found: list[Written] = []
    for item in batches:
        records = MemoryRecords(bytes(item.builder._build()))
        while (batch := records.next_batch()) is not None:
            found.extend(Written(r.key, r.value, list(r.headers), r.timestamp) for r in batch)
    return found


def _emitter(
    accepted: int = 4,
    *,
    partitions: dict[str, int] | None = None,
    bytes_max: dict[str, int] | None = None,
    aged_ms: dict[str, float] | None = None,
    **keys: Any,
) -> Emitter:
    """Build an emitter for the address ``orders``, configured by ``keys``.

    Topics have 4 partitions and take 1 MiB, except those given.
    """
    address = validate({"addresses": [{"name": "orders", **keys}]}).addresses[0]
    topics = (address.accepted_topic, address.duplicates_topic, address.quarantine_topic, FORWARD)
    counts = dict.fromkeys(topics, 4) | {address.accepted_topic: accepted} | (partitions or {})
    outputs = Outputs(counts, dict.fromkeys(topics, 2**20) | (bytes_max or {}), aged_ms or {})
    return Emitter(address, FORWARD, outputs)


def _outcome(
    records: Sequence[Given],
    verdicts: Sequence[Verdict] | None = None,
    groups: Sequence[bytes | None] | None = None,
    originals: Sequence[bytes | None] = (),
) -> Outcome:
    """Build the path's outcome for records of ``orders``, partition 3: by default accepted, and grouped by key."""
    verdicts = [ACCEPTED] * len(records) if verdicts is None else verdicts
    here = [
        Item(record, b"orders/3/%d" % record.offset, None, group, None, 3, original=original)
        for record, group, original in zip_longest(
            records, [record.key for record in records] if groups is None else groups, originals
        )
    ]
    return Outcome(Checked(list(verdicts), [None] * len(verdicts), 0, [], []), here)


def _forward(outcome: Outcome, home: int, record: Given) -> None:
    outcome.forwarded.append(Item(record, b"orders/3/%d" % record.offset, None, None, None, 3, home=home))


def _refuse(outcome: Outcome, record: Given, reason: str) -> None:
    outcome.quarantined.append(
        Item(record, b"orders/3/%d" % record.offset, None, None, None, 3, reason=reason)
    )


def _emit(
    emitter: Emitter,
    records: Sequence[Given],
    verdicts: Sequence[Verdict] | None = None,
    new_builder: Callable[[], Any] | None = None,
) -> list[Outgoing]:
    return emitter.emit(_outcome(records, verdicts), new_builder or _builders())


def _only(batches: Sequence[Outgoing], topic: str) -> list[Outgoing]:
    return [batch for batch in batches if batch.topic == topic]


def _partition(key: bytes, partitions: int) -> int:
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


# -- accepted messages ----------------------------------------------------------------------------------------------


def test_unchanged() -> None:
    """Key, value, headers in their order with repeats and nulls, and timestamp pass as they are; the source is added."""
    headers: Headers = [("b", b"1"), ("_AMQ_DUPL_ID", b"id"), ("a", None), ("b", b""), ("ä", b"\xff")]
    record = Given(77, b"g\x00\xff", bytes(range(256)), headers, timestamp=1_234_567_890_123)

    (written,) = _read(_emit(_emitter(4), [record]))

    expected = Written(
        b"g\x00\xff", bytes(range(256)), [*headers, ("_RF_SOURCE", b"orders/3/77")], 1_234_567_890_123
    )
    assert written == expected


@pytest.mark.parametrize(
    ("key", "value"), [(b"", b""), (b"k", None), (None, b"v"), (None, None), (b"k", b"")]
)
def test_null_and_empty(key: bytes | None, value: bytes | None) -> None:
    """Null stays null and empty stays empty, in key and value; a message without headers gets the source only."""
    (written,) = _read(_emit(_emitter(4), [Given(0, key, value)]))

    assert (written.key, written.value) == (key, value)
    assert written.headers == [("_RF_SOURCE", b"orders/3/0")]


@pytest.mark.parametrize(
    "timestamps",
    [(0, 0), (5, 3, 9, 1), (1_700_000_000_000, 1, 2**41), (-1, -1, 7, -1, -5, -1, 9), (-5, -1, 3)],
)
def test_timestamps(timestamps: tuple[int, ...]) -> None:
    """Timestamps stay, also when they go backwards, are zero or below, or are not there, which is -1."""
    records = [Given(offset, timestamp=timestamp) for offset, timestamp in enumerate(timestamps)]

    assert tuple(item.timestamp for item in _read(_emit(_emitter(1), records))) == timestamps


HOUR_MS = 3_600_000
ACCEPTED_TOPIC = "orders.accepted"


@pytest.mark.parametrize(
    ("ages_h", "aged"),
    [((0, 0), False), ((2, 3), True), ((3, 0), False), ((0, 3), False), ((0.9,), False), ((-5, 9), False)],
)
def test_aged(ages_h: tuple[float, ...], aged: bool) -> None:
    """A batch is aged if all its records are: retention goes by the youngest."""
    now = int(time.time() * 1000)
    records = [Given(offset, timestamp=now - round(age * HOUR_MS)) for offset, age in enumerate(ages_h)]

    (written,) = _emit(_emitter(1, aged_ms={ACCEPTED_TOPIC: HOUR_MS}), records)
    (unlimited,) = _emit(_emitter(1), records)

    assert (written.aged, unlimited.aged) == (aged, False)


def test_aged_by_partition_and_batch() -> None:
    """The age of each batch of a partition is judged alone, even of a second one."""
    now = int(time.time() * 1000)
    old, young = now - 2 * HOUR_MS, now
    first, second = at_home(0, 2), at_home(1, 2)
    records = [
        Given(0, first, b"x" * 300_000, timestamp=young),
        Given(1, second, b"x", timestamp=old),
        Given(2, first, b"x" * 300_000, timestamp=old),
        Given(3, first, b"x", timestamp=old),
    ]

    written = _emit(_emitter(2, aged_ms={ACCEPTED_TOPIC: HOUR_MS}), records)

    assert sorted((item.partition, item.aged) for item in written) == [(0, False), (0, True), (1, True)]


def test_only_duplicates_are_left_out() -> None:
    """Accepted and unchecked messages pass in order; duplicates do not."""
    records = [Given(index) for index in range(5)]

    written = _read(_emit(_emitter(1), records, [ACCEPTED, DUPLICATE, UNCHECKED, DUPLICATE, ACCEPTED]))

    assert [item.headers[-1][1] for item in written] == [b"orders/3/0", b"orders/3/2", b"orders/3/4"]


@pytest.mark.parametrize("count", [0, 3])
def test_nothing_to_write(count: int) -> None:
    """An outcome without accepted messages yields no batch, because the broker would refuse an empty one."""
    assert _emit(_emitter(4), [Given(index) for index in range(count)], [DUPLICATE] * count) == []


def test_a_verdict_a_record() -> None:
    """A mismatch of verdicts and records is a programmer error, and never cuts the batch short."""
    with pytest.raises(ValueError, match="zip"):
        _emit(_emitter(4), [Given(0), Given(1)], [ACCEPTED])


def test_partitions_and_order() -> None:
    """A group's records go to its home in the accepted topic, in their order of arrival."""
    source = random.Random(3)
    records = [Given(index, key=b"group-%d" % source.randint(0, 30)) for index in range(2_000)]

    batches = _emit(_emitter(8), records)

    assert {batch.topic for batch in batches} == {"orders.accepted"}
    assert sorted(batch.partition for batch in batches) == list(range(8))
    for batch in batches:
        mine = [record.offset for record in records if _partition(record.key or b"", 8) == batch.partition]
        sources = [item.headers[-1][1] for item in _read([batch])]
        assert sources == [b"orders/3/%d" % offset for offset in mine]


def test_overflow_goes_on_in_order() -> None:
    """A full batch is followed by another of its partition; nothing is lost, doubled or out of order."""
    source = random.Random(4)
    records = [
        Given(index, key=b"%d" % source.randint(0, 9), value=source.randbytes(source.randint(0, 400)))
        for index in range(500)
    ]
    batches = _emit(_emitter(3), records, new_builder=_builders(2_048))

    assert len(batches) > 30
    assert all(batch.builder.size() <= 2_048 for batch in batches)
    for partition in range(3):
        written = _read([batch for batch in batches if batch.partition == partition])
        mine = [record for record in records if _partition(record.key or b"", 3) == partition]
        assert [item.headers[-1][1] for item in written] == [b"orders/3/%d" % given.offset for given in mine]
        assert [(item.key, item.value) for item in written] == [(given.key, given.value) for given in mine]


def test_large_record_goes_alone() -> None:
    """A record larger than a batch goes in one of its own, between its neighbours."""
    records = [Given(0), Given(1, value=b"x" * 5_000), Given(2)]

    batches = _emit(_emitter(1), records, new_builder=_builders(1_000))

    assert [batch.builder.record_count() for batch in batches] == [1, 1, 1]
    assert [batch.value for batch in _read(batches)] == [b"value", b"x" * 5_000, b"value"]


def test_null_keys_spread_by_batch() -> None:
    """Records without group go to one partition a batch, and from batch to batch to each in turn."""
    emitter = _emitter(3)
    chosen = []
    for _ in range(7):
        batches = _emit(emitter, [Given(index, key=None) for index in range(10)])
        assert [batch.builder.record_count() for batch in batches] == [10]
        chosen.append(batches[0].partition)

    assert chosen[3:] == chosen[:4]
    assert sorted(chosen[:3]) == [0, 1, 2]


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_partitioner(partitioner: str) -> None:
    """Groups are placed in the accepted topic as the address's own producers would place them."""
    emitter = _emitter(8, partitioner=partitioner)
    keys = [b"group-%d" % index for index in range(50)]

    batches = _emit(emitter, [Given(number, key=key) for number, key in enumerate(keys)])

    found = {written.key: batch.partition for batch in batches for written in _read([batch])}
    hashes: dict[str, Callable[[bytes], int]] = {
        "murmur2": lambda key: _partition(key, 8),
        "crc32": zlib.crc32,
    }
    assert found == {key: hashes[partitioner](key) % 8 for key in keys}


# -- the group is not the key ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [b"key", b"", None])
def test_key_that_is_not_the_group(key: bytes | None) -> None:
    """The accepted record's key is the group; the input's key, null and empty too, stands in a header behind the source."""
    outcome = _outcome([Given(7, key=key, headers=[("a", b"1")])], groups=[b"group"])

    (batch,) = _emitter(8).emit(outcome, _builders())

    assert batch.partition == _partition(b"group", 8)
    (written,) = _read([batch])
    assert written.key == b"group"
    assert written.headers == [("a", b"1"), ("_RF_SOURCE", b"orders/3/7"), ("_RF_KEY", key)]


@pytest.mark.parametrize("key", [b"group", None])
def test_forged_key_header(key: bytes | None) -> None:
    """A key header that a producer wrote gives way: none stands where the key is the group, and only the true one else."""
    headers: Headers = [("_RF_KEY", b"forged"), ("a", b"1"), ("_RF_KEY", None)]
    outcome = _outcome([Given(7, key=key, headers=headers)], groups=[b"group"])

    (written,) = _read(_emitter().emit(outcome, _builders()))

    true = [] if key == b"group" else [("_RF_KEY", None)]
    assert written.headers == [("a", b"1"), ("_RF_SOURCE", b"orders/3/7"), *true]


# -- observed duplicates ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicates", ["drop", "divert"])
def test_observed(duplicates: str) -> None:
    """An address that observes accepts all messages in order, each with its verdict in place of a forged or former one."""
    forged: Headers = [("_RF_VERDICT", b"x"), ("a", b"1"), ("_RF_VERDICT", b"DUPLICATE orders/9/9")]
    outcome = _outcome(
        [Given(4, headers=forged), Given(5, key=b"k", value=None, timestamp=5), Given(6), Given(7)],
        [ACCEPTED, DUPLICATE, UNCHECKED, DUPLICATE],
        [b"group"] * 4,
        [None, b"orders/0/77", None, None],
    )

    batches = _emitter(mode="observe", duplicates=duplicates).emit(outcome, _builders())

    assert {batch.topic for batch in batches} == {"orders.accepted"}
    written = _read(batches)
    assert [record.headers for record in written] == [
        [("a", b"1"), ("_RF_SOURCE", b"orders/3/4"), ("_RF_VERDICT", b"ACCEPTED")],
        [("_RF_SOURCE", b"orders/3/5"), ("_RF_KEY", b"k"), ("_RF_VERDICT", b"DUPLICATE orders/0/77")],
        [("_RF_SOURCE", b"orders/3/6"), ("_RF_VERDICT", b"UNCHECKED")],
        [("_RF_SOURCE", b"orders/3/7"), ("_RF_VERDICT", b"DUPLICATE")],
    ]
    assert (written[1].key, written[1].value, written[1].timestamp) == (b"group", None, 5)


def test_enforced_without_a_verdict() -> None:
    """An address that enforces takes a former verdict off, so a chain behind an address that observes shows none."""
    outcome = _outcome(
        [Given(4, headers=[("_RF_VERDICT", b"DUPLICATE orders/0/1")]), Given(5)], [ACCEPTED, DUPLICATE]
    )

    (written,) = _read(_emitter().emit(outcome, _builders()))

    assert written.headers == [("_RF_SOURCE", b"orders/3/4")]


# -- diverted duplicates ---------------------------------------------------------------------------------------------


def test_diverted() -> None:
    """A diverted duplicate is as it came, its own key included, and names its source and its original's."""
    headers: Headers = [("b", b"1"), ("a", None), ("b", b"")]
    outcome = _outcome(
        [Given(4, key=b"k", value=None, headers=headers, timestamp=5), Given(5)],
        [DUPLICATE, ACCEPTED],
        [b"group", b"group"],
        [b"orders/0/77", None],
    )

    batches = _emitter(duplicates="divert").emit(outcome, _builders())

    (diverted,) = _only(batches, "orders.duplicates")
    assert diverted.partition == _partition(b"group", 4)
    expected = [*headers, ("_RF_SOURCE", b"orders/3/4"), ("_RF_ORIGINAL", b"orders/0/77")]
    assert _read([diverted]) == [Written(b"k", None, expected, 5)]
    assert [batch.headers[0][1] for batch in _read(_only(batches, "orders.accepted"))] == [b"orders/3/5"]


def test_diverted_replaces_forged_headers() -> None:
    """Source and original that a producer wrote give way to the true ones; an original that is not known is null."""
    headers: Headers = [("_RF_ORIGINAL", b"x"), ("_RF_SOURCE", b"y"), ("a", b"1"), ("_RF_ORIGINAL", b"z")]
    outcome = _outcome([Given(4, headers=headers)], [DUPLICATE])

    (written,) = _read(_emitter(duplicates="divert").emit(outcome, _builders()))

    assert written.headers == [("a", b"1"), ("_RF_SOURCE", b"orders/3/4"), ("_RF_ORIGINAL", None)]


@pytest.mark.parametrize(
    ("verdict", "expected"), [(DUPLICATE, []), (Verdict.CONFLICT, [("_RF_VERDICT", b"CONFLICT")])]
)
def test_diverted_has_its_own_verdict(verdict: Verdict, expected: Headers) -> None:
    """A verdict of the address before this one in a chain, or of a producer, does not make a duplicate a conflict."""
    outcome = _outcome([Given(4, headers=[("_RF_VERDICT", b"CONFLICT")])], [verdict])

    (written,) = _read(_emitter(duplicates="divert").emit(outcome, _builders()))

    assert written.headers == [("_RF_SOURCE", b"orders/3/4"), ("_RF_ORIGINAL", None), *expected]


# -- forwarded records -----------------------------------------------------------------------------------------------


def test_forwarded() -> None:
    """A forwarded record is as it came, in its home's partition, with the source that will be accepted and its own time.

    It is written at the time of forwarding.
    """
    headers: Headers = [("_RF_SOURCE", b"forged"), ("b", None), ("_RF_KEY", b"theirs"), ("b", b"1")]
    outcome = _outcome([Given(1)])
    record = Given(2, key=None, value=b"", headers=headers, timestamp=9)
    _forward(outcome, 2, record)

    before = int(time.time() * 1000)
    batches = _emitter().emit(outcome, _builders())
    after = int(time.time() * 1000) + 1

    (forwarded,) = _only(batches, FORWARD)
    assert forwarded.partition == 2
    ours = [("_RF_SOURCE", b"orders/3/2"), ("_RF_TIMESTAMP", b"\0\0\0\0\0\0\0\x09")]
    (written,) = _read([forwarded])
    assert written == Written(None, b"", [*headers, *ours], written.timestamp)
    assert before <= written.timestamp <= after
    assert len(_read(_only(batches, "orders.accepted"))) == 1


# -- too large -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["orders.accepted", "orders.duplicates", FORWARD])
def test_too_large(topic: str) -> None:
    """A record too large for its topic is named by its offset, with size, topic and limit."""
    large, small = b"x" * 3_000, b"x"
    verdict = DUPLICATE if topic == "orders.duplicates" else ACCEPTED
    values = [small, large, small, small, large]
    records = [Given(10 + number, value=value) for number, value in enumerate(values)]
    outcome = _outcome([] if topic == FORWARD else records, None if topic == FORWARD else [verdict] * 5)
    for record in records if topic == FORWARD else ():
        _forward(outcome, 0, record)
    emitter = _emitter(bytes_max={topic: 2_000}, duplicates="divert")

    with pytest.raises(TooLargeError) as raised:
        emitter.emit(outcome, _builders(2_000))

    assert sorted(raised.value.reasons) == [(3, 11), (3, 14)]
    for reason in raised.value.reasons.values():
        size, _, rest = reason.partition(" ")
        assert int(size) > 3_000
        assert rest == f"bytes, {topic} takes max.message.bytes = 2000"


def test_all_that_is_too_large_is_named_at_once() -> None:
    """Records too large for different topics are named together, so that one new decision is enough."""
    large = b"x" * 3_000
    outcome = _outcome(
        [Given(0, value=large), Given(1), Given(2, value=large)], [ACCEPTED, ACCEPTED, DUPLICATE]
    )
    for record in (Given(3, value=large), Given(4)):
        _forward(outcome, 1, record)
    limits = dict.fromkeys(("orders.accepted", "orders.duplicates", FORWARD), 2_000)

    with pytest.raises(TooLargeError) as raised:
        _emitter(bytes_max=limits, duplicates="divert").emit(outcome, _builders(2_000))

    assert sorted(raised.value.reasons) == [(3, 0), (3, 2), (3, 3)]


def test_just_fits() -> None:
    """A record whose batch is exactly as large as the topic takes is written; with one byte more it is not."""
    (batch,) = _emit(_emitter(), [Given(0, value=b"x" * 3_000)])
    size = batch.builder.size()
    exact, short = (_emitter(bytes_max={"orders.accepted": item}) for item in (size, size - 1))

    assert len(_emit(exact, [Given(0, value=b"x" * 3_000)], new_builder=_builders(1_000))) == 1
    with pytest.raises(TooLargeError):
        _emit(short, [Given(0, value=b"x" * 3_000)], new_builder=_builders(1_000))


# -- quarantine ------------------------------------------------------------------------------------------------------

OURS: Headers = [("_RF_SOURCE", b"orders/3/8"), ("_RF_REASON", b"too large")]


def _quarantine(record: Given, bytes_max: int = 2**20, partitions: int = 4) -> list[Outgoing]:
    outcome = _outcome([])
    _refuse(outcome, record, "too large")
    emitter = _emitter(
        bytes_max={"orders.quarantine": bytes_max}, partitions={"orders.quarantine": partitions}
    )
    return emitter.emit(outcome, _builders(1_000))


def _digest(value: bytes) -> bytes:
    return json.dumps(
        {"bytes": len(value), "blake2b_256": blake2b(value, digest_size=32).hexdigest()}
    ).encode()


def test_quarantine_whole() -> None:
    """A record that fits goes to quarantine unchanged, with source and reason in place of forged ones."""
    headers: Headers = [("_RF_REASON", b"forged"), ("a", None), ("_RF_SOURCE", b"forged"), ("a", b"1")]

    (batch,) = _quarantine(Given(8, key=b"k", value=b"x" * 3_000, headers=headers, timestamp=9))

    assert (batch.topic, batch.partition) == ("orders.quarantine", 3)
    assert _read([batch]) == [Written(b"k", b"x" * 3_000, [("a", None), ("a", b"1"), *OURS], 9)]


def test_quarantine_without_value() -> None:
    """A value too large for the quarantine topic is replaced by its size and digest; key and headers stay."""
    value = bytes(range(256)) * 16

    (written,) = _read(
        _quarantine(Given(8, key=b"k", value=value, headers=[("a", b"1")], timestamp=9), 2_000)
    )

    assert written == Written(b"k", _digest(value), [("a", b"1"), *OURS], 9)


@pytest.mark.parametrize("large", ["key", "header"])
def test_quarantine_bare(large: str) -> None:
    """A record with too large a key or header leaves only source, reason, size and digest, so nothing vanishes."""
    filler = b"x" * 4_000
    record = (
        Given(8, key=filler, timestamp=9)
        if large == "key"
        else Given(8, headers=[("a", filler)], timestamp=9)
    )

    assert _read(_quarantine(record, 2_000)) == [Written(None, _digest(b"value"), OURS, 9)]


def test_quarantine_that_takes_nothing() -> None:
    """A quarantine topic that refuses even the bare form stops the commit. The lane waits, and the error names the setting."""
    with pytest.raises(
        TopicError, match=r"orders\.quarantine .*max\.message\.bytes=100, .* --add-config max"
    ):
        _quarantine(Given(8), 100)


def test_quarantine_with_few_partitions() -> None:
    """The partition follows the source's, within what the quarantine topic has."""
    (batch,) = _quarantine(Given(8), partitions=2)

    assert batch.partition == 1


def test_quarantine_in_few_batches() -> None:
    """Refused records go to quarantine in as few batches as possible, with those shown by digest among them."""
    outcome = _outcome([])
    values = [b"x" * 3_000 if index == 500 else b"v" for index in range(1_000)]
    for number, value in enumerate(values):
        _refuse(outcome, Given(number, value=value), "no")

    batches = _emitter(bytes_max={"orders.quarantine": 2_500}).emit(outcome, _builders(2_500))

    size = sum(batch.builder.size() for batch in batches)
    written = _read(batches)
    assert [item.headers[0] for item in written] == [
        ("_RF_SOURCE", b"orders/3/%d" % index) for index in range(1_000)
    ]
    assert [item.value for item in written] == [
        _digest(value) if len(value) > 1 else value for value in values
    ]
    assert len(batches) <= 1.1 * size / 2_500 + 2


def test_no_digest_by_an_old_size() -> None:
    """A value is replaced by its digest only after the current limit of the quarantine topic was asked for."""
    outcome = _outcome([])
    _refuse(outcome, Given(1, value=b"x" * 3_000), "no")
    emitter = _emitter(bytes_max={"orders.quarantine": 2_500})

    with pytest.raises(TooLargeError) as caught:
        emitter.emit(outcome, _builders(2_500), sizes_confirmed=False)
    assert caught.value.reasons == {}
    assert len(emitter.emit(outcome, _builders(2_500), sizes_confirmed=True)) == 1


# -- the changelog --------------------------------------------------------------------------------------------------


def _table(tmp_path: Path, *, persistent: bool = True) -> LaneTable:
    """Return a lane's table of 500 IDs that was never opened: enough to say what belongs into its changelog."""
    return LaneTable(tmp_path, TableOptions(capacity=500, resident_ids_max=500, persistent=persistent))


def _change(count: int, removed: Sequence[bytes] = ()) -> Change:
    ids = [stored_ids.encode_id(b"id-%d" % index) for index in range(count)]
    slots = [
        (codec.ring_key(500, index), codec.ring_value(index, ids[index], Origin(3, index, 1)))
        for index in range(count)
    ]
    meta = Meta(500, count, 0, {"orders": 9}, {"orders": 4}, "0011")
    return Change(
        Checked([ACCEPTED] * count, [None] * count, 0, ids, [1] * count), slots, list(removed), meta
    )


@pytest.mark.parametrize("size", [512 * 1024, 300])
def test_changelog(size: int, tmp_path: Path) -> None:
    """A changelog transaction has all slots in order, then the meta record that closes it, in any number of batches."""
    change = _change(40)

    batches = changelog_batches("changelog", 3, _table(tmp_path), change, _builders(size))

    assert {(batch.topic, batch.partition) for batch in batches} == {("changelog", 3)}
    assert (len(batches) > 5) == (size == 300)
    meta = (codec.META_KEY, codec.encode_meta(change.meta))
    written = _read(batches)
    assert [(item.key, item.value) for item in written] == [*change.slots, meta]
    assert {tuple(item.headers) for item in written} == {()}


def test_changelog_without_new_ids(tmp_path: Path) -> None:
    """A batch of duplicates alone writes its meta record, because the input offset has moved."""
    change = _change(0)

    (batch,) = changelog_batches("changelog", 0, _table(tmp_path), change, _builders())

    expected = [(codec.META_KEY, codec.encode_meta(change.meta))]
    assert [(item.key, item.value) for item in _read([batch])] == expected


def test_changelog_with_removed_slots(tmp_path: Path) -> None:
    """Removed slots of an earlier capacity are tombstones; the meta record closes the transaction all the same."""
    removed = [codec.ring_key(700, index) for index in range(30)]
    change = _change(10, removed)

    written = _read(changelog_batches("changelog", 0, _table(tmp_path), change, _builders(300)))

    tombstones = [(data, None) for data in removed]
    meta = (codec.META_KEY, codec.encode_meta(change.meta))
    assert [(item.key, item.value) for item in written] == [*tombstones, *change.slots, meta]


def test_changelog_of_a_ring_in_memory(tmp_path: Path) -> None:
    """A ring that is only in memory writes no slots; leftover slots of an earlier one are still removed."""
    removed = [codec.ring_key(700, 1)]
    change = _change(10, removed)

    written = _read(
        changelog_batches("changelog", 0, _table(tmp_path, persistent=False), change, _builders())
    )

    meta = (codec.META_KEY, codec.encode_meta(change.meta))
    assert [(item.key, item.value) for item in written] == [(removed[0], None), meta]


def test_changelog_has_the_time_of_writing(tmp_path: Path) -> None:
    """Changelog records are as old as their writing, however old the messages are."""
    before = int(time.time() * 1000)
    change = _change(3, [codec.ring_key(700, 1)])

    written = _read(changelog_batches("changelog", 0, _table(tmp_path), change, _builders()))

    assert len(written) == 5
    assert all(before <= item.timestamp <= time.time() * 1000 for item in written)
