import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast
from unittest.mock import patch

import pytest

import native
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import ForeignChangelogError
from ringfence_kafka.protocol import stored_ids
from ringfence_kafka.protocol.hop import Source
from ringfence_kafka.readers.log_reader import LogReader
from tables import codec
from tables.change import Restored, TableOptions
from tables.codec import FormatError, Meta, Origin, Route, Slot
from tables.index import StoredIndex
from tables.native_index import NativeIndex
from tables.restore import ChangelogBounds, Restore, require_own, trusted_start
from tables.ring import ResidentIndex, Ring, Verdict
from tables.rocksdb.errors import DamagedStoreError, UntrustedError
from tables.rocksdb.store import Store, StoredState, Writes
from tables.table import LaneTable
from tests.support.at_once import at_once, make_ring
from tests.support.records.served_log import serve

ALPHABET = [stored_ids.encode_id(b"%c" % letter) for letter in b"abcdefghijklmnopqrstuvwxyz"]
DAY_S = 86_400.0
WAY = Route(Source("to-paris", "AbC_-67890123456789012", 3), 0)


class Record(NamedTuple):
    """A changelog record as a consumer gives it."""

    offset: int
    key: bytes
    value: bytes | None


class Log:
    """A lane's changelog, written as a lane writes it, beside the ring that never stopped."""

    def __init__(self, capacity: int, incarnation: str = "0011223344556677") -> None:
        self.ring = Ring(capacity)
        self.incarnation = incarnation
        self.records: list[Record] = []
        self.end = 0
        """The high watermark: markers of transactions take an offset, too."""
        self.next = 0
        """The input offset that comes next."""
        self.cuts = [0]
        """The high watermark after each transaction."""

    def transact(self, letters: str) -> None:
        self.transact_ids(_ids(letters))

    def transact_ids(self, ids: Sequence[bytes]) -> None:
        checked = self.ring.check(ids)
        self.ring.apply(checked)
        self.next += len(ids)
        for sequence, id_ in enumerate(checked.new_ids, checked.first_sequence):
            self.append(*_slot(self.ring.capacity, sequence, id_))
        next_offsets, counts = {"orders": self.next}, {"orders": 4}
        capacity, head, floor = self.ring.capacity, self.ring.head, self.ring.floor
        meta = Meta(capacity, head, floor, next_offsets, counts, self.incarnation)
        self.append(codec.META_KEY, codec.encode_meta(meta))
        self.end += 1
        self.cuts.append(self.end)

    def append(self, key: bytes, value: bytes | None) -> None:
        self.records.append(Record(self.end, key, value))
        self.end += 1

    def last_meta(self) -> Meta:
        return codec.decode_meta(self.records[-1].value or b"")

    def upto(self, end: int) -> "Log":
        earlier = Log(self.ring.capacity, self.incarnation)
        earlier.records = [record for record in self.records if record.offset < end]
        earlier.end, earlier.next = end, self.next
        return earlier

    def bounds(self) -> ChangelogBounds:
        return ChangelogBounds(0, self.end, DAY_S)


def _ids(letters: str) -> list[bytes]:
    return [stored_ids.encode_id(letter.encode()) for letter in letters]


def _slot(capacity: int, sequence: int, encoded_id: bytes) -> tuple[bytes, bytes]:
    origin = Origin(0, 1_000 + sequence, 2_000 + sequence)
    return codec.ring_key(capacity, sequence), codec.ring_value(sequence, encoded_id, origin)


def restored(log: Log, store: Store | None, *, resident: bool = True) -> Restore:
    """Bring the store to the log's end as the opening of a lane does."""
    state = store.state() if store else None
    start = trusted_start(state, log.bounds(), indexed=not resident)
    restore = Restore(store, store.begin_epoch() if store else 0, resident=resident)
    at_once(restore.load())
    restore.consume([record for record in log.records if start <= record.offset < log.end])
    restore.finish()
    return restore


def _index(store: Store, capacity: int) -> StoredIndex:
    """Return an index whose live slots are all of one capacity."""

    def find(sequences: Sequence[int]) -> list[Slot | None]:
        return store.slots_of([codec.ring_key(capacity, sequence) for sequence in sequences])

    return StoredIndex(store, capacity, find)


def known(ring: Ring) -> str:
    """Return the letters that the ring calls duplicates, in order of their acceptance."""
    checks = [(ring.check([data]), data) for data in ALPHABET]
    found = [
        (checked.originals[0], data) for checked, data in checks if checked.verdicts == [Verdict.DUPLICATE]
    ]
    return b"".join(data[1:] for _, data in sorted(found)).decode()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "store-0")
    yield made
    made.close()


class Lane:
    """A lane's table over its changelog; only the consumer that would fetch its records is replaced."""

    def __init__(self, log: Log, folder: Path, ids_max: int) -> None:
        self.log = log
        self.folder = folder
        self.table = LaneTable(folder, TableOptions(log.ring.capacity, ids_max))

    async def open(self) -> Restored:
        _, restored = await self.table.open(LogReader(KafkaSettings()), "changelog", 0, self.log.bounds())
        return restored


@pytest.fixture
def lane_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Lane]]:
    made: list[Lane] = []

    def make(log: Log, name: str = "orders-0", *, resident: bool = True) -> Lane:
        serve(monkeypatch, lambda: log.records)
        made.append(Lane(log, tmp_path / name, 1_000_000 if resident else 0))
        return made[-1]

    yield make
    for lane in made:
        lane.table.close()


both_kinds = pytest.mark.parametrize("resident", [True, False], ids=["resident index", "stored index"])


def _history(incarnation: str = "0011223344556677") -> Log:
    """Evictions, IDs accepted again, a batch larger than the ring, batches without a new ID."""
    log = Log(5, incarnation)
    for name in ("abc", "cba", "defg", "a", "", "bcdabcdhi", "ihd", "jklmna", "b", "ab"):
        log.transact(name)
    return log


@both_kinds
async def test_a_compacted_changelog_is_written_as_it_comes(
    store: Store, lane_of: Callable[..., Lane], monkeypatch: pytest.MonkeyPatch, resident: bool
) -> None:
    """Slots are written as they are read, although only the last record names the owner. A store built in part is not trusted."""
    monkeypatch.setattr("tables.restore.FLUSH_RECORDS", 2)
    log = Log(50)
    for letters in ("abc", "defg", "hi", "jklm"):
        log.transact(letters)
    slots = [record for record in log.records if record.key != codec.META_KEY]
    restore = Restore(store, store.begin_epoch(), resident=resident)
    at_once(restore.load())
    for slot in slots:
        restore.consume([slot])
        assert len(restore._pending) < 2
    assert (len(list(store.slots())), store.state(), store.unfinished) == (12, None, True)
    store.close()

    other = Log(50, incarnation="another one")
    other.transact("xyz")
    lane = lane_of(other, store.path.name, resident=resident)
    opened = await lane.open()
    assert (opened.reused, opened.records) == (False, len(other.records))
    assert known(lane.table.ring) == known(other.ring)


def _state(position: int, *, age_s: float = 0.0, indexed: bool = False) -> StoredState:
    return StoredState(Meta(5, 3, 0, {}, {}, "0011223344556677"), position, time.time() - age_s, indexed)


def test_trusted() -> None:
    """Reading begins one record before the position, and never before the changelog's start."""
    states = [None, *map(_state, (70, 90, 41, 39))]  # before the last one only a marker is missing
    bounds = ChangelogBounds(40, 90, DAY_S)

    assert [trusted_start(state, bounds, indexed=False) for state in states] == [40, 69, 89, 40, 40]


@pytest.mark.parametrize(
    ("position", "age_s", "indexed", "why"),
    [
        (91, 0, False, "position 91 lies beyond the changelog's end 90"),
        (38, 0, False, "position 38 lies before the changelog's start 40"),
        (70, 510, False, "it is 510 s old"),
        (70, 0, True, "it holds no index"),
    ],
)
def test_untrusted(position: int, age_s: int, indexed: bool, why: str) -> None:
    """A store is not trusted outside the changelog, or where tombstones that it has not seen may be gone."""
    bounds = ChangelogBounds(40, 90, 1_000.0)

    assert trusted_start(_state(70, age_s=490), bounds, indexed=False) == 69
    with pytest.raises(UntrustedError, match=why):
        trusted_start(_state(position, age_s=age_s), bounds, indexed=indexed)


@both_kinds
def test_wrong_incarnation(store: Store, resident: bool) -> None:
    """A changelog that was deleted and created again is not the one that the store knows, even if it says the same."""
    restored(_history(), store, resident=resident)
    wrong = "incarnation 0011223344556677, the changelog's is ffffffffffffffff"
    with pytest.raises(UntrustedError, match=wrong):
        restored(_history("f" * 16), store, resident=resident)


@both_kinds
def test_head_above_a_later_one(store: Store, resident: bool) -> None:
    """A head never goes back: a later meta record with a smaller one is noticed although the first record fits."""
    log = _history()
    restored(log, store, resident=resident)
    log.append(codec.META_KEY, codec.encode_meta(log.last_meta()._replace(head=9)))

    with pytest.raises(UntrustedError, match=r"its head [0-9]+ is above the changelog's 9"):
        restored(log, store, resident=resident)


@both_kinds
def test_tail_lost_and_regrown(store: Store, resident: bool) -> None:
    """A changelog that holds another meta record where the store left it is another one, though head and end fit."""
    log = _history()
    cut = log.cuts[3]  # "defg": four slots, then the meta record
    restored(log.upto(cut), store, resident=resident)
    regrown = log.upto(log.cuts[2])
    regrown.ring = make_ring(5, restored(regrown, None))
    for batch in ("stuv", "wxyz"):  # the input went on meanwhile
        regrown.transact(batch)
    assert [record.key for record in regrown.records if record.offset == cut - 2] == [codec.META_KEY]

    lost = f"another record at {cut - 2}: it lost its last records and was written again"
    with pytest.raises(UntrustedError, match=lost):
        restored(regrown, store, resident=resident)


@both_kinds
def test_last_record_compacted_away(store: Store, resident: bool) -> None:
    """A store whose last record is gone is not trusted: so looks a lost tail, too. A rebuilt store knows all IDs."""
    log = _history()
    cut = log.cuts[3]
    restored(log.upto(cut), store, resident=resident)
    before = dict(store._db.items())
    log.records = [record for record in log.records if record.offset != cut - 2]

    with pytest.raises(UntrustedError, match=f"its last record, at {cut - 2}, is no longer in the changelog"):
        restored(log, store, resident=resident)
    with pytest.raises(UntrustedError, match="no longer holds its last record"):
        restored(log.upto(cut), store, resident=resident)
    assert dict(store._db.items()) == before
    store.close()
    afresh = Store.create_afresh(store.path)
    restore = restored(log, afresh, resident=resident)
    assert known(make_ring(5, restore, None if resident else _index(afresh, 5))) == known(log.ring)
    afresh.close()


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (b"\x02later", b"", "record 4 is of kind 02, unknown to this version"),
        (b"", b"", "unknown to this version"),
        (codec.ring_key(5, 0), b"\x03" + bytes(40), "ring record of format 3"),
        (codec.META_KEY, b'{"format":4}', "meta record of format 4"),
        (codec.META_KEY, None, "meta record is damaged"),
    ],
)
@both_kinds
def test_records_of_a_later_version(
    store: Store, resident: bool, key: bytes, value: bytes | None, says: str
) -> None:
    log = Log(5)
    log.transact("ab")
    log.append(key, value)

    with pytest.raises(FormatError, match=says):
        restored(log, store, resident=resident)


@both_kinds
@pytest.mark.parametrize("at", [0.05, 0.3, 0.6, 0.9])
async def test_damage_heals(lane_of: Callable[..., Lane], resident: bool, at: float) -> None:
    """Damage to RocksDB, found on opening or only by a batch, is healed by opening again: the changelog has it all."""
    log = Log(2_000)
    ids = [stored_ids.encode_id(b"%d" % index) for index in range(2_000)]
    log.transact_ids(ids)
    lane = lane_of(log, resident=resident)
    table, times = lane.table, [0] * len(ids)
    await lane.open()
    table.close()
    Store(lane.folder).close()  # moves RocksDB's log into a table file
    (file,) = lane.folder.glob("*.sst")
    content = bytearray(file.read_bytes())
    begin = int(len(content) * at)
    content[begin : begin + 64] = b"\xff" * 64
    file.write_bytes(content)

    await lane.open()
    table.seconds_covered()  # told by pages, and of a damaged RocksDB it breaks none
    try:
        verdicts = table.check(ids, times).verdicts
    except DamagedStoreError:
        await lane.open()
        verdicts = table.check(ids, times).verdicts

    assert verdicts == [Verdict.DUPLICATE] * 2_000
    assert (await lane.open()).reused


@pytest.mark.parametrize(
    ("happens", "letters", "kept"),
    [("others wrote", "vwv", True), ("overrun", "ghijklmnop", False), ("cleared", "q", False), ("closed", "v", False)],
)  # fmt: skip
async def test_what_is_in_memory_is_not_read_again(
    lane_of: Callable[..., Lane], happens: str, letters: str, kept: bool
) -> None:
    """A lane that reopens reads only newer records. It reads all slots if its table was cleared, overrun by a ring, or closed."""
    log = _history()
    lane = lane_of(log)
    await lane.open()
    if happens == "cleared":
        log.ring = Ring(5, log.ring.head, log.ring.head)
    if happens == "closed":
        lane.table.close()
    log.transact(letters)
    with (
        patch.object(Store, "slots", autospec=True, side_effect=Store.slots) as slots,
        patch.object(Store, "slot_values", autospec=True, side_effect=Store.slot_values) as values,
    ):
        restored = await lane.open()

    assert (restored.kept, restored.reused) == (kept, True)
    assert slots.call_count + values.call_count == (0 if kept else 1)
    ring, expected = lane.table.ring, log.ring
    assert known(ring) == known(expected)
    assert (ring.head, ring.floor, ring.low) == (expected.head, expected.floor, expected.low)
    assert len(cast("ResidentIndex | NativeIndex", ring.index)) == len(expected)
    assert (lane.table.meta, lane.table.position) == (log.last_meta(), log.records[-1].offset + 1)


@pytest.mark.skipif(native.core is None, reason=native.spoken)
@pytest.mark.parametrize("hole", [False, True])
@pytest.mark.parametrize("disk", [False, True])
async def test_what_is_irregular_is_restored_in_python(
    lane_of: Callable[..., Lane], caplog: pytest.LogCaptureFixture, hole: bool, disk: bool
) -> None:
    """Records that are out of order or incomplete give the same ring with and without the native core."""
    caplog.set_level("INFO", "ringfence.table")
    log = Log(9)
    log.transact("ab")
    lane, reference = lane_of(log), lane_of(log, "orders-1")
    if disk:
        await lane.open()
        lane.table.close()
    log.transact("cdef")
    *_, one, two = [n for n, record in enumerate(log.records) if record.key[:1] == codec.KIND_RING]
    first, second = log.records[one], log.records[two]
    if hole:
        del log.records[two]
    else:
        log.records[one] = second._replace(offset=first.offset)
        log.records[two] = first._replace(offset=second.offset)

    await lane.open()
    found = known(lane.table.ring)
    lane.table.close()
    with patch.object(native, "core", None):
        await reference.open()
    again = await lane.open()

    assert found == known(reference.table.ring)
    assert len(found) >= 5
    assert (again.reused, known(lane.table.ring)) == (not hole, found)
    assert ("rebuilt from the changelog" if hole else "filled without the native core") in caplog.text


async def test_incarnation(lane_of: Callable[..., Lane]) -> None:
    """A new changelog gets its own incarnation; one with records keeps the incarnation that they name."""
    found = []
    for name, log in (("one", Log(5)), ("two", Log(5)), ("three", _history(incarnation="ab"))):
        lane = lane_of(log, name)
        await lane.open()
        found.append(lane.table.record(lane.table.check([], []), [], {}, {}, {}).meta.incarnation)

    assert found[0] != found[1]
    assert found[2] == "ab"


def _slot_of_a_later_version(store: Store) -> None:
    store._db.put(b"s" + codec.ring_key(40, 3)[1:], b"\x02")


def _damaged_hops(store: Store) -> None:
    store._db.put(b"h" + codec.hops_key(WAY)[1:], codec.hops_value(0, [5])[:-1] + b"\x00")


def _short_chunk(store: Store) -> None:
    first, *others = store.chunk_keys().all()
    assert others
    store._db.put(first, cast("bytes", store._db.get(first))[:-1])


@pytest.mark.skipif(native.core is None, reason=native.spoken)
@pytest.mark.parametrize("damage", [_slot_of_a_later_version, _damaged_hops, _short_chunk])
async def test_what_cannot_be_read_is_rebuilt_at_once(
    lane_of: Callable[..., Lane], caplog: pytest.LogCaptureFixture, damage: Callable[[Store], None]
) -> None:
    """RocksDB with a record that cannot be read is closed, while others are still unread, and rebuilt."""
    log = Log(40)
    lane = lane_of(log)
    for batch in ("abc", "defg", "hijk"):
        log.transact(batch)
        await lane.open()
        lane.table.close()
    store = Store(lane.folder)
    damage(store)
    store.close()

    restored = await lane.open()

    assert (restored.reused, restored.records) == (False, len(log.records))
    assert known(lane.table.ring) == known(log.ring)
    assert caplog.text.count("is rebuilt from the changelog") == 1


async def test_record_of_a_later_version_in_the_changelog(lane_of: Callable[..., Lane]) -> None:
    """A changelog that this version cannot read is refused, and rebuilding does not help; it is not passed over."""
    log = _history()
    log.append(b"\x02", b"")

    with pytest.raises(FormatError, match="unknown to this version"):
        await lane_of(log).open()


@both_kinds
def test_older_acceptance_does_not_apply(store: Store, resident: bool) -> None:
    """A slot keeps its newest occupant, and an ID its newest acceptance, whatever the order of the records and restores."""
    log = Log(5)
    newer, older, elsewhere = _slot(5, 8, ALPHABET[0]), _slot(5, 3, ALPHABET[1]), _slot(4, 3, ALPHABET[0])
    log.ring = Ring(5, 9, 0)
    for records in ([newer, older], [older, elsewhere]):
        for record in records:
            log.append(*record)
        log.transact("")
        restore = restored(log, store, resident=resident)

    assert dict(store.slots()) == dict([newer, elsewhere])
    assert known(make_ring(5, restore, None if resident else _index(store, 5))) == "a"


def _persist(
    store: Store, index: StoredIndex, first_sequence: int, letters: str, live_from: int | None = None
) -> None:
    ids = _ids(letters)

    def fill(writes: Writes) -> None:
        index.persist(writes, first_sequence, ids, live_from)
        writes.put_slots([_slot(3, sequence, id_) for sequence, id_ in enumerate(ids, first_sequence)])

    store.write(store.epoch, _state(1, indexed=True), fill)


def _entries(store: Store, letters: str) -> dict[str, int]:
    found = zip(letters, store.sequences(_ids(letters)), strict=True)
    return {letter: sequence for letter, sequence in found if sequence is not None}


@pytest.mark.parametrize("live_from", [None, 0])
def test_stored_index_goes_round(store: Store, live_from: int | None) -> None:
    """The slots of a batch may lie at the end of the ring and at its beginning; a batch may be as large as the ring, or larger."""
    index = _index(store, 3)
    _persist(store, index, 0, "ab", live_from)
    _persist(store, index, 2, "cd", live_from)  # slots 2 and 0
    assert _entries(store, "abcd") == {"b": 1, "c": 2, "d": 3}

    _persist(store, index, 4, "efg", live_from and 1)
    assert _entries(store, "bcdefg") == {"e": 4, "f": 5, "g": 6}
    _persist(store, index, 7, "hijkl", live_from and 4)
    assert _entries(store, "efg") == {}
    assert _entries(store, "hijkl") == {"j": 9, "k": 10, "l": 11}
    entries = cast("Iterator[tuple[bytes, bytes]]", store._db.items())
    assert sum(key[:1] == b"i" for key, _ in entries) == 3


@pytest.mark.parametrize("theirs", [("", ""), ("rf-orders", "x"), ("rf", "other"), ("rf", "orders")])
def test_whose_changelog(store: Store, theirs: tuple[str, str]) -> None:
    """Records of another address never reach RocksDB."""
    restore = Restore(
        store,
        store.begin_epoch(),
        resident=True,
        check=lambda meta: require_own(meta, "rf", "orders", "log/0"),
    )
    meta = Meta(5, 1, 0, {}, {}, "0f", app=theirs[0], address=theirs[1])
    records = [Record(0, *_slot(5, 0, ALPHABET[0])), Record(1, codec.META_KEY, codec.encode_meta(meta))]
    if theirs != ("rf", "orders"):
        with pytest.raises(ForeignChangelogError, match=r"^log/0 holds the rings of address "):
            restore.consume(records)
        assert (store.state(), list(store.slots())) == (None, [])
        return
    restore.consume(records)
    restore.finish()
    assert len(list(store.slots())) == 1


def test_rocksdb_of_a_version_that_named_no_owner(store: Store) -> None:
    """RocksDB and changelog are compared by meaning: neither an upgrade nor a record with more fields causes a rebuild."""
    log = Log(5)
    log.transact("a")
    restored(log, store)
    last = log.records[-1]
    document = json.loads(last.value or b"") | {"later": 1}
    log.records[-1] = last._replace(value=json.dumps(document).encode())
    log.transact("b")

    assert restored(log, store).count < len(log.records)
