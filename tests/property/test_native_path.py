"""For the same records, the core decides and builds the same batches as the path in Python, byte by byte."""

from collections.abc import Sequence
from pathlib import Path as Folder
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

import native
from agents.batch.batch import DueRecords, FetchedBatch
from agents.batch.native_records import parse
from agents.decision.decide import Outcome, Path
from agents.output.build import Emitter
from agents.output.changelog import changelog_batches
from agents.output.native_build import NativePath
from agents.output.topic_batches import Outputs, TooLargeError
from agents.rules.lane_rules import limits_of
from native.records import RawRecords
from ringfence_kafka.aiokafka_patches.batch_compression import CompressedBatch
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.producer.transactional import BatchForm, Outgoing
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.stored_ids import encode_id
from tables.change import Change, TableOptions
from tables.codec import Slot, decode_ring, next_key
from tables.native_index import NativeIndex
from tables.ring import Checked, Index, ResidentIndex, Ring, Verdict
from tables.table import LaneTable
from tests.property import examples
from tests.support.records.stored_batches import Stored, stored

pytestmark = pytest.mark.skipif(native.core is None, reason=native.spoken)

CHANGELOG, FORWARD = "app-orders-changelog", "app-orders-forward"
NOW_S = 1_700_000_000.5
PRODUCER = (4711, 3, 17)


class Written(NamedTuple):
    """All visible results of a batch."""

    outputs: list[tuple[str, int, bool, bytes]]
    changelog: list[tuple[str, int, int, list[tuple[bytes | None, bytes | None]]]]
    """Bytes without the times: aiokafka's builder looks at a clock of its own."""
    slots: list[tuple[bytes, bytes]]
    counts: tuple[int, ...]
    meta: Any
    ring: tuple[int, int, int, list[tuple[int, bytes]]]
    quarantined: int


class Table(LaneTable):
    """A table without RocksDB: its slots are in memory."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.written: dict[int, Slot] = {}

    def find(self, sequences: Sequence[int]) -> list[Slot | None]:
        return [self.written.get(sequence) for sequence in sequences]


class World:
    """An address, its topics, and one lane of it: twice, in Python and with the core."""

    def __init__(
        self, address: dict[str, Any], form: BatchForm, bytes_max: int, counts: tuple[int, int], floor: int
    ) -> None:
        self.address: AddressSettings = validate({"addresses": [{"name": "orders", **address}]}).addresses[0]
        self.form = form
        accepted, topics = self.address.accepted_topic, self.address.topics("app")
        sizes = dict.fromkeys(topics.values(), 2**20) | {accepted: bytes_max}
        self.outputs = Outputs(
            dict.fromkeys(topics.values(), 4) | {accepted: counts[1], "orders": counts[0]},
            sizes,
            {accepted: 60_000.0},
        )
        self.homes = counts[0]
        self._timed = self.address.id_cache_size_max
        self.python, self.core = (
            self._lane(_python_index(self._timed, floor), floor),
            self._lane(_native_index(self.address.ring_capacity, floor, timed=self._timed > 0), floor),
        )
        inputs = {"orders": counts[0], accepted: counts[1]}
        self.native_path = NativePath(self.address, 0, inputs, CHANGELOG, self.outputs, self.core[1], form)

    def _lane(self, index: Index, floor: int) -> tuple[Table, Emitter, Path]:
        capacity, promise = self.address.ring_capacity, limits_of(self.address).promise
        table = Table(Folder("nowhere"), TableOptions(capacity, 10**6, promise=promise))
        table._restore.memory.ring = Ring(capacity, floor, floor, index, promise=promise)
        return table, Emitter(self.address, FORWARD, self.outputs), Path(self.address, 0, self.homes, FORWARD)

    def _builder(self) -> Any:
        kind = CompressedBatch if self.form.compression else BatchBuilder
        return kind(self.form.bytes_max, self.form.compression, is_transactional=1)

    def by_python(self, *batches: FetchedBatch) -> Written:
        table, emitter, path = self.python
        due = [DueRecords(batch, list(batch.records)) for batch in batches]
        refused: dict[tuple[int, int], str] = {}
        while True:
            outcome = path.decide(due, table, refused)
            try:
                outputs = emitter.emit(outcome, self._builder)
            except TooLargeError as error:
                refused |= error.reasons
                emitter.spread -= 1
                continue
            change = table.record(
                outcome.checked, outcome.new_origins, _nexts(batches, outcome), {}, {}, outcome.judged
            )
            state = changelog_batches(CHANGELOG, 0, table, change, self._builder)
            return _written(table, outcome, outputs, change, state)

    def by_core(self, *batches: FetchedBatch) -> Written | None:
        table = self.core[0]
        plan = self.native_path.plan([DueRecords(batch, batch.records) for batch in batches], table)
        if plan is None:
            return None
        change = table.record_slots(plan.outcome.checked, plan.slots, _nexts(batches, plan.outcome), {}, {})
        state = self.native_path.closed_by_meta(plan.state, change)
        return _written(table, plan.outcome, plan.outputs, change, state)

    def follow_python(self, *batches: FetchedBatch) -> Written:
        """Run the path in Python on the core's lane, as after the core has left it a batch."""
        self.python, kept = (*self.core[:2], self.core[2]), self.python
        try:
            return self.by_python(*batches)
        finally:
            self.python = kept


def _nexts(batches: Sequence[FetchedBatch], outcome: Outcome) -> dict[str, int]:
    return {
        next_key("orders", batch.partition, 1): end for batch, end in zip(batches, outcome.ends, strict=True)
    }


def _filled(index: Index, low: int, floor: int) -> Index:
    """Return a lane with two IDs right below the floor: by the size of the ring alone they would be known."""
    ids = [encode_id(b"%d" % number) for number in range(1, 3)][:floor]
    index.add(Checked([], [], low, ids, [0, 0][:floor]), low)
    return index


def _python_index(capacity: int, floor: int) -> Index:
    low = max(0, floor - 2)
    return _filled(ResidentIndex(low, capacity), low, floor)


def _native_index(capacity: int, floor: int, *, timed: bool) -> Index:
    assert native.core is not None
    low = max(0, floor - 2)
    return _filled(NativeIndex(native.core.Ids(capacity, low, timed)), low, floor)


def _known(index: Index) -> tuple[int, int, list[tuple[int, bytes]]]:
    """IDs that the ring knows, in the order in which it will forget them."""
    if isinstance(index, NativeIndex):
        return index.ids.low, len(index), index.ids.entries()
    assert isinstance(index, ResidentIndex)
    assert None not in index._order
    entries = [(number, item or b"") for number, item in enumerate(index._order, index._low)]
    return index._low, len(index), entries


def _bytes(batches: Sequence[Outgoing]) -> list[tuple[str, int, bool, bytes]]:
    found = []
    for batch in batches:
        batch.builder._set_producer_state(*PRODUCER)
        found.append((batch.topic, batch.partition, batch.aged, bytes(batch.builder._build())))
    return found


def _timeless(batch: Outgoing) -> tuple[str, int, int, list[tuple[bytes | None, bytes | None]]]:
    [(topic, partition, aged, encoded)] = _bytes([batch])
    assert not aged
    records = MemoryRecords(encoded).next_batch()
    assert records is not None
    assert records.validate_crc()
    return topic, partition, records.attributes, [(record.key, record.value) for record in records]


def _written(
    table: Table, outcome: Outcome, outputs: Sequence[Outgoing], change: Change, state: Sequence[Outgoing]
) -> Written:
    ring = table.ring
    slots = list(change.slots)
    table.written.update({slot.sequence: slot for slot in (decode_ring(*item) for item in slots)})
    ring.apply(change.checked)
    table._restore.memory.meta = change.meta
    counts = [outcome.checked.verdicts.count(verdict) for verdict in Verdict]
    return Written(
        _bytes(outputs),
        [_timeless(item) for item in state],
        slots,
        tuple(counts),
        change.meta._replace(incarnation=""),
        (ring.head, *_known(ring.index)),
        len(outcome.quarantined)
        + len(outcome.forwarded)
        + sum(item.unit is not None for item in outcome.here),
    )


ids = st.sampled_from(
    [b"1", b"1", b"2", b"2", b"3", b"4", b"5", b"", b"x" * 256, b"x" * 257, None]
) | st.binary(max_size=3)
keys = st.sampled_from([b"a", b"b", b"", b"group-7", b"k" * 63, b"k" * 64, None])
values = st.sampled_from([b"", b"v", b"w" * 63, b"w" * 64, b"w" * 300, b'{"id":"1"}', None]) | st.binary(
    max_size=100
)
id_forms = st.sampled_from(["header", "header", "header", "key", "value"]) | st.sampled_from(
    ["header:other", "header:ce_id", ["header:_AMQ_DUPL_ID", "key"], ["header:ce_id", "header:_AMQ_DUPL_ID"],
     ["value", "header:_AMQ_DUPL_ID"], ["key", "value"], "value:/id"]
)  # fmt: skip
content_types = st.sampled_from(
    [b"application/cloudevents+json", b"Application/CloudEvents+JSON; charset=UTF-8", b"text/plain"]
)
SELDOM = st.integers(0, 7).map(lambda drawn: drawn == 7)
NAMES = [
    "_AMQ_DUPL_ID", "_HQ_DUPL_ID", "group", "other", "", "ce_id", "content-type",
    wire_names.HEADER_SOURCE, wire_names.HEADER_KEY, wire_names.HEADER_ORIGINAL, wire_names.HEADER_VERDICT,
]  # fmt: skip
names = st.sampled_from(NAMES + ["_AMQ_DUPL_ID"] * 6)
rare = st.sampled_from([wire_names.HEADER_TRANSACTION, wire_names.HEADER_HOP, "ä"])
any_headers = st.tuples(names, ids) | st.tuples(st.just("content-type"), content_types)
headers = st.lists(any_headers, max_size=4) | st.tuples(st.tuples(names, ids)).map(list)
odd_headers = st.lists(st.tuples(names | rare, ids), max_size=3)
times = st.integers(int(NOW_S * 1000) - 10, int(NOW_S * 1000)) | st.integers(0, 2**42)


@st.composite
def batches(draw: st.DrawFn, partition: int = 0) -> list[FetchedBatch]:
    found, offset = [], draw(st.sampled_from([0, 95, 10**12]))
    for _ in range(draw(st.integers(1, 4))):
        records, begin = [], offset
        # What is not plain makes its whole batch Python's.
        some_headers = odd_headers if draw(SELDOM) else headers
        for _ in range(draw(st.integers(1, 12))):
            offset += draw(st.sampled_from([0, 0, 0, 2]))
            records.append(Stored(offset, draw(times), draw(keys), draw(values), draw(some_headers)))
            offset += 1
        parsed = parse(stored(records), 0, [], lambda _codec, _data: None)
        those = parsed[0] if parsed is not None else records
        found.append(FetchedBatch("orders", partition, begin, offset, those, 0))
    return found


@st.composite
def transactions(draw: st.DrawFn) -> list[list[FetchedBatch]]:
    partitions = [draw(batches(number)) for number in [0, 2, 12][: draw(st.sampled_from([1, 1, 2, 3]))]]
    longest = max(map(len, partitions))
    return [[some[place] for some in partitions if place < len(some)] for place in range(longest)]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Worlds of several sizes, among them sizes at which batches are split and records are too large."""
    size = draw(st.sampled_from([0, 1, 2, 5, 1000]))
    id_form = draw(id_forms)
    groups = [{}, {}, {"group_header": "group"}, {"group_header": "group", "default_group": "d"}]
    by_value = "value" in ([id_form] if isinstance(id_form, str) else id_form)
    conflicts = ["duplicate"] if by_value else ["duplicate", "duplicate", "divert", "accept"]
    address = {
        "id_cache_size": size,
        "duplicate_id_from": id_form,
        "on_conflict": draw(st.sampled_from(conflicts)),
        "duplicate_id_missing": "quarantine" if draw(SELDOM) else "unchecked",
        **draw(st.sampled_from(groups)),
        "partitioner": draw(st.sampled_from(["murmur2", "crc32"])),
        "duplicates": "divert" if draw(SELDOM) else "drop",
        "mode": draw(st.sampled_from(["enforce", "enforce", "observe"])),
        "lanes": draw(st.sampled_from([0, 0, 1, 2])),
    }
    if size and draw(st.booleans()):
        address["id_cache_size_max"] = size + draw(st.sampled_from([1, 3, 20]))
        address["id_min_age"] = draw(st.sampled_from(["1ms", "5ms", "7d"]))
    form = BatchForm(draw(st.sampled_from([512 * 1024, 400, 700])), draw(st.sampled_from([0, 0, 0, 1, 4])))
    counts = 2 if draw(SELDOM) else 1, draw(st.integers(1, 5))
    return World(address, form, 350 if draw(SELDOM) else 2**20, counts, draw(st.sampled_from([0, 7, 7])))


def _fetched(*records: Stored) -> FetchedBatch:
    parsed = parse(stored(list(records)), 0, [], lambda _codec, _data: None)
    assert parsed is not None
    assert isinstance(parsed[0], RawRecords)
    return FetchedBatch("orders", 0, 0, len(records), parsed[0], 0)


@settings(max_examples=examples(400))
@given(worlds(), transactions())
def test_same_bytes(world: World, those: list[list[FetchedBatch]]) -> None:
    """The core writes the same outputs, changelog, slots, ring and counts; a batch left to Python leaves both lanes equal too."""
    with patch("time.time", lambda: NOW_S):
        for some in those:
            reference = world.by_python(*some)
            core = world.by_core(*some)
            if core is None:
                core = world.follow_python(*some)
            elif reference.quarantined:
                raise AssertionError("the core has done what it does not know")

            assert core == reference


@pytest.mark.parametrize("name", [wire_names.HEADER_TRANSACTION, wire_names.HEADER_HOP])
@pytest.mark.parametrize("value", [b"json/1", b"", None])
def test_not_its_own(name: str, value: bytes | None) -> None:
    """The core leaves a batch with a transaction or a record of a bridge to Python, which opens it."""
    world = World({"id_cache_size": 5}, BatchForm(512 * 1024, 0), 2**20, (1, 1), 0)
    plain, other = Stored(0, key=b"a"), Stored(1, key=b"a", headers=[("other", b""), (name, value)])

    assert world.by_core(_fetched(plain, other)) is None
    assert world.by_core(_fetched(plain)) is not None


@settings(max_examples=examples(150))
@given(
    st.lists(
        st.tuples(st.integers(0, 330), st.sampled_from([0, 63, 64, -64, -65, 8192, -(10**9), 10**12])),
        min_size=2,
        max_size=6,
    ),
    st.integers(10**12, 2**41),
    st.integers(0, 330),
)
def test_batches_are_full_at_the_same_byte(sizes: list[tuple[int, int]], base: int, last: int) -> None:
    """A record begins a new batch at the same byte as in aiokafka's builder, with limits around the size of all records."""
    placed = enumerate([*sizes, (last, 0)])
    batch = _fetched(*(Stored(number, base + time, b"a", b"x" * size) for number, (size, time) in placed))
    with patch("time.time", lambda: NOW_S):
        [whole] = World({"id_cache_size": 0}, BatchForm(2**20, 0), 2**20, (1, 1), 0).by_python(batch).outputs
        for limit in (len(whole[3]) + item for item in (-1, 0, 1)):
            world = World({"id_cache_size": 0}, BatchForm(limit, 0), 2**20, (1, 1), 0)

            assert world.by_core(batch) == world.by_python(batch)


@pytest.mark.parametrize(
    "address",
    [
        {},
        {"duplicate_id_from": "header:_AMQ_DUPL_ID"},
        {"duplicate_id_from": ["header:trace", "key", "header:_AMQ_DUPL_ID"]},
        {"duplicate_id_from": ["value", "header:_AMQ_DUPL_ID"]},
        {"mode": "observe", "duplicates": "divert"},
    ],
)
def test_plain_traffic_is_the_cores(address: dict[str, Any]) -> None:
    """The core handles plain traffic itself: if it fell back to Python, the gain would be lost unnoticed."""
    world = World(address, BatchForm(512 * 1024, 0), 2**20, (1, 4), 0)
    headers = [[("_AMQ_DUPL_ID", b"%d" % (index % 900)), ("trace", b"x")] for index in range(1_000)]
    records = [Stored(index, 0, b"group-%d" % (index % 10), b"v", each) for index, each in enumerate(headers)]
    batch = _fetched(*records)
    with patch("time.time", lambda: NOW_S):
        core, reference = world.by_core(batch), world.by_python(batch)

    assert core is not None
    assert core.counts == (900, 100, 0, 0)
    assert core == reference


def test_a_core_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the error of a core that fails, and Python takes its work over: nothing stops."""
    world = World({}, BatchForm(512 * 1024, 0), 2**20, (1, 4), 0)
    batch = _fetched(Stored(0))
    world.native_path._rules = ()
    with patch("agents.batch.native_records.native.core.parse", side_effect=ValueError("planted")):
        assert parse(stored([Stored(0)]), 0, [], lambda _codec, _data: None) is None

    assert world.by_core(batch) is None
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "the native core failed",
        "the native core failed at orders/0 from offset 0 on",
    ]


def test_more_headers_of_ours_than_16_bits_count() -> None:
    """All headers of ours that a producer has forged are left out, however many they are."""
    world = World({"group_header": ""}, BatchForm(2**20, 0), 2**20, (1, 1), 0)
    name = wire_names.HEADER_SOURCE
    batch = _fetched(Stored(0, key=b"g", headers=[(name, b"")] * 2**16))
    with patch("time.time", lambda: NOW_S):
        core, reference = world.by_core(batch), world.by_python(batch)

    assert core is not None
    assert core == reference
    assert core.outputs[0][3].count(name.encode()) == 1


@pytest.mark.parametrize(
    ("headers", "value", "done"),
    [
        ([("ce_source", b"x" * 300), ("ce_id", b"1")], b"v", True),
        ([("content-type", b"application/json")], b"v", True),
        ([("content-type", b"Application/CloudEvents+json; x")], b'{"source":"/s","id":"1"}', False),
        ([("ce_id", b"1"), ("content-type", b"application/cloudevents+json")], b'{"source":"/s"}', False),
    ],
)
def test_cloudevents_in_structured_mode_are_pythons(
    headers: list[tuple[str, bytes | None]], value: bytes, done: bool
) -> None:
    """The core leaves a batch to Python if an attribute may be in a value. Otherwise it writes the same."""
    address = {"duplicate_id_from": ["header:ce_source", "header:ce_id"]}
    world = World(address, BatchForm(2**20, 0), 2**20, (1, 1), 0)
    batch = _fetched(Stored(0, key=b"g", value=value, headers=headers))
    with patch("time.time", lambda: NOW_S):
        core, reference = world.by_core(batch), world.by_python(batch)

    assert core == (reference if done else None)
