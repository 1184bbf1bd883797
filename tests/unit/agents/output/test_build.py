import json
import random
import time
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
    return lambda: BatchBuilder(size, 0, is_transactional=1)


def _read(batches: Sequence[Outgoing]) -> list[Written]:
    found: list[Written] = []
    for item in batches:
        records = MemoryRecords(bytes(item.builder._build()))
        while (batch := records.next_batch()) is not None:
            found.extend(Written(r.key, r.value, list(r.headers), r.timestamp) for r in batch)
    return found


def _emitter(
    accepted: int = 4,
    *,
    bytes_max: dict[str, int] | None = None,
    aged_ms: dict[str, float] | None = None,
    **keys: Any,
) -> Emitter:
    """Build an emitter for the address ``orders``, configured by ``keys``. Topics have 4 partitions and take 1 MiB, except those given."""
    address = validate({"addresses": [{"name": "orders", **keys}]}).addresses[0]
    topics = (address.accepted_topic, address.duplicates_topic, address.quarantine_topic, FORWARD)
    counts = dict.fromkeys(topics, 4) | {address.accepted_topic: accepted}
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


def _put(items: list[Item], record: Given, **fate: Any) -> None:
    """Add a record with its fate: a ``home`` that it is forwarded to, or the ``reason`` of its quarantine."""
    items.append(Item(record, b"orders/3/%d" % record.offset, None, None, None, 3, **fate))


def _emit(emitter: Emitter, records: Sequence[Given], new_builder: Any = None) -> list[Outgoing]:
    return emitter.emit(_outcome(records), new_builder or _builders())


def _only(batches: Sequence[Outgoing], topic: str) -> list[Outgoing]:
    return [batch for batch in batches if batch.topic == topic]


def _partition(key: bytes, partitions: int) -> int:
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


def test_unchanged() -> None:
    """Key, value, headers in their order and timestamp pass as they are, empty, null, below zero or missing; the source is added."""
    headers: Headers = [("b", b"1"), ("_AMQ_DUPL_ID", b"id"), ("a", None), ("b", b""), ("ä", b"\xff")]
    records = [
        Given(0, b"g\x00\xff", bytes(range(256)), headers, timestamp=1_234_567_890_123),
        Given(1, b"", b"", timestamp=-1),
        Given(2, b"k", None, timestamp=7),
        Given(3, None, b"v", timestamp=-5),
        Given(4, None, None, timestamp=0),
        Given(5, b"k", b"", timestamp=-1),
        Given(6, timestamp=2**41),
    ]

    assert _read(_emit(_emitter(1), records)) == [
        Written(r.key, r.value, [*r.headers, ("_RF_SOURCE", b"orders/3/%d" % r.offset)], r.timestamp)
        for r in records
    ]


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


def test_nothing_to_write() -> None:
    """An outcome without accepted messages yields no batch, which brokers refuse. One that lacks verdicts is a programmer error."""
    for count in (0, 3):
        outcome = _outcome([Given(index) for index in range(count)], [DUPLICATE] * count)
        assert _emitter(4).emit(outcome, _builders()) == []
    with pytest.raises(ValueError, match="zip"):
        _emitter(4).emit(_outcome([Given(0), Given(1)], [ACCEPTED]), _builders())


@pytest.mark.parametrize("size", [512 * 1024, 2_048])
def test_partitions_and_order(size: int) -> None:
    """A group's records go to its home in their order of arrival, in as many batches as it takes; one larger than a batch goes alone."""
    rng = random.Random(4)
    records = [Given(at, b"%d" % rng.randint(0, 9), rng.randbytes(rng.randint(0, 400))) for at in range(500)]
    records[250] = Given(250, value=b"x" * 5_000)
    batches = _emit(_emitter(3), records, new_builder=_builders(size))

    assert {(batch.topic, batch.partition) for batch in batches} == {("orders.accepted", n) for n in range(3)}
    assert len(batches) == 3 or len(batches) > 30
    assert all(batch.builder.size() <= size or batch.builder.record_count() == 1 for batch in batches)
    for partition in range(3):
        written = _read([batch for batch in batches if batch.partition == partition])
        mine = [record for record in records if _partition(record.key or b"", 3) == partition]
        assert [(item.key, item.value, item.headers[-1][1]) for item in written] == [
            (given.key, given.value, b"orders/3/%d" % given.offset) for given in mine
        ]


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


@pytest.mark.parametrize("key", [b"key", b"", None])
def test_key_that_is_not_the_group(key: bytes | None) -> None:
    """The accepted record's key is the group; the input's key, null and empty too, stands in a header behind the source."""
    outcome = _outcome([Given(7, key=key, headers=[("a", b"1")])], groups=[b"group"])

    (batch,) = _emitter(8).emit(outcome, _builders())

    assert batch.partition == _partition(b"group", 8)
    (written,) = _read([batch])
    assert written.key == b"group"
    assert written.headers == [("a", b"1"), ("_RF_SOURCE", b"orders/3/7"), ("_RF_KEY", key)]


@pytest.mark.parametrize(
    ("verdict", "key", "forged", "ours"),
    [
        (ACCEPTED, b"group", "_RF_KEY", []),
        (ACCEPTED, None, "_RF_KEY", [("_RF_KEY", None)]),
        (ACCEPTED, b"group", "_RF_TX_PART", []),
        (DUPLICATE, b"group", "_RF_ORIGINAL", [("_RF_ORIGINAL", None)]),
        (Verdict.CONFLICT, b"group", "_RF_ORIGINAL", [("_RF_ORIGINAL", None), ("_RF_VERDICT", b"CONFLICT")]),
    ],
)
def test_forged_headers(verdict: Verdict, key: bytes | None, forged: str, ours: Headers) -> None:
    """Headers of ours that a producer or the address before this one in a chain wrote give way to the true ones."""
    headers = [(name, b"x") for name in (forged, "_RF_SOURCE", "_RF_VERDICT", forged)]
    outcome = _outcome([Given(7, key=key, headers=[*headers, ("a", b"1")])], [verdict], [b"group"])

    (written,) = _read(_emitter(duplicates="divert").emit(outcome, _builders()))

    assert written.headers == [("a", b"1"), ("_RF_SOURCE", b"orders/3/7"), *ours]


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


def test_forwarded() -> None:
    """A forwarded record is as it came, in its home's partition, with the source to be accepted and its own time, written now."""
    headers: Headers = [("_RF_SOURCE", b"forged"), ("b", None), ("_RF_KEY", b"theirs"), ("b", b"1")]
    outcome = _outcome([Given(1)])
    record = Given(2, key=None, value=b"", headers=headers, timestamp=9)
    _put(outcome.forwarded, record, home=2)

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


@pytest.mark.parametrize("topic", ["orders.accepted", "orders.duplicates", FORWARD])
def test_too_large(topic: str) -> None:
    """A record too large for its topic is named by its offset, with size, topic and limit."""
    large, small = b"x" * 3_000, b"x"
    verdict = DUPLICATE if topic == "orders.duplicates" else ACCEPTED
    values = [small, large, small, small, large]
    records = [Given(10 + number, value=value) for number, value in enumerate(values)]
    outcome = _outcome([] if topic == FORWARD else records, None if topic == FORWARD else [verdict] * 5)
    for record in records if topic == FORWARD else ():
        _put(outcome.forwarded, record, home=0)
    emitter = _emitter(bytes_max={topic: 2_000}, duplicates="divert")

    with pytest.raises(TooLargeError) as raised:
        emitter.emit(outcome, _builders(2_000))

    assert sorted(raised.value.reasons) == [(3, 11), (3, 14)]
    for reason in raised.value.reasons.values():
        size, _, rest = reason.partition(" ")
        assert int(size) > 3_000
        assert rest == f"bytes, {topic} takes max.message.bytes = 2000"


def test_just_fits() -> None:
    (batch,) = _emit(_emitter(), [Given(0, value=b"x" * 3_000)])
    size = batch.builder.size()
    exact, short = (_emitter(bytes_max={"orders.accepted": item}) for item in (size, size - 1))

    assert len(_emit(exact, [Given(0, value=b"x" * 3_000)], new_builder=_builders(1_000))) == 1
    with pytest.raises(TooLargeError):
        _emit(short, [Given(0, value=b"x" * 3_000)], new_builder=_builders(1_000))


OURS: Headers = [("_RF_SOURCE", b"orders/3/8"), ("_RF_REASON", b"too large")]


def _quarantine(record: Given, bytes_max: int = 2**20) -> list[Outgoing]:
    outcome = _outcome([])
    _put(outcome.quarantined, record, reason="too large")
    return _emitter(bytes_max={"orders.quarantine": bytes_max}).emit(outcome, _builders(1_000))


def _digest(value: bytes) -> bytes:
    digest = blake2b(value, digest_size=32).hexdigest()
    return json.dumps({"bytes": len(value), "blake2b_256": digest}).encode()


def test_quarantine_whole() -> None:
    """A record that fits goes to quarantine unchanged, with source and reason in place of forged ones."""
    headers: Headers = [("_RF_REASON", b"forged"), ("a", None), ("_RF_SOURCE", b"forged"), ("a", b"1")]

    (batch,) = _quarantine(Given(8, key=b"k", value=b"x" * 3_000, headers=headers, timestamp=9))

    assert (batch.topic, batch.partition) == ("orders.quarantine", 3)
    assert _read([batch]) == [Written(b"k", b"x" * 3_000, [("a", None), ("a", b"1"), *OURS], 9)]


VALUE, LARGE = bytes(range(256)) * 16, b"x" * 4_000


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (Given(8, b"k", VALUE, [("a", b"1")], 9), Written(b"k", _digest(VALUE), [("a", b"1"), *OURS], 9)),
        (Given(8, LARGE, timestamp=9), Written(None, _digest(b"value"), OURS, 9)),
        (Given(8, headers=[("a", LARGE)], timestamp=9), Written(None, _digest(b"value"), OURS, 9)),
    ],
    ids=["value", "key", "header"],
)
def test_quarantine_in_part(record: Given, expected: Written) -> None:
    """A value too large for the quarantine topic is replaced by its size and digest; too large a key or headers are left out as well."""
    assert _read(_quarantine(record, 2_000)) == [expected]


def test_quarantine_that_takes_nothing() -> None:
    """A quarantine topic that refuses even the bare form stops the commit. The lane waits, and the error names the setting."""
    with pytest.raises(TopicError, match=r"orders\.quarantine .*max\.message\.bytes=100, .*--add-config max"):
        _quarantine(Given(8), 100)


def test_no_digest_by_an_old_size() -> None:
    """A value is replaced by its digest only after the current limit of the quarantine topic was asked for."""
    outcome = _outcome([])
    _put(outcome.quarantined, Given(1, value=b"x" * 3_000), reason="no")
    emitter = _emitter(bytes_max={"orders.quarantine": 2_500})

    with pytest.raises(TooLargeError) as caught:
        emitter.emit(outcome, _builders(2_500), sizes_confirmed=False)
    assert caught.value.reasons == {}
    assert len(emitter.emit(outcome, _builders(2_500), sizes_confirmed=True)) == 1


def _change(count: int, removed: Sequence[bytes]) -> Change:
    ids = [stored_ids.encode_id(b"id-%d" % index) for index in range(count)]
    values = [codec.ring_value(at, id_, Origin(3, at, 1)) for at, id_ in enumerate(ids)]
    slots = [(codec.ring_key(500, at), value) for at, value in enumerate(values)]
    meta = Meta(500, count, 0, {"orders": 9}, {"orders": 4}, "0011")
    checked = Checked([ACCEPTED] * count, [None] * count, 0, ids, [1] * count)
    return Change(checked, slots, list(removed), meta)


@pytest.mark.parametrize(("size", "persistent"), [(512 * 1024, True), (300, True), (512 * 1024, False)])
def test_changelog(size: int, persistent: bool, tmp_path: Path) -> None:
    """A changelog transaction has tombstones, the slots of a ring on disk in order, and at last the meta record, all as old as their writing."""
    table = LaneTable(tmp_path, TableOptions(capacity=500, resident_ids_max=500, persistent=persistent))
    change = _change(40, [codec.ring_key(700, index) for index in range(30)])
    before = int(time.time() * 1000)

    batches = changelog_batches("changelog", 3, table, change, _builders(size))

    assert {(batch.topic, batch.partition) for batch in batches} == {("changelog", 3)}
    assert (len(batches) > 5) == (size == 300)
    written = _read(batches)
    assert [(item.key, item.value) for item in written] == [
        *((key, None) for key in change.removed),
        *(change.slots if persistent else ()),
        (codec.META_KEY, codec.encode_meta(change.meta)),
    ]
    assert {tuple(item.headers) for item in written} == {()}
    assert all(before <= item.timestamp <= time.time() * 1000 for item in written)
