import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast
from unittest.mock import patch

import pytest

import native
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import ForeignChangelogError, PrerequisiteError
from ringfence_kafka.protocol import stored_ids
from ringfence_kafka.readers.log_reader import LogReader
from tables import codec
from tables.change import Restored, TableOptions
from tables.codec import FormatError, Meta, Origin, Slot
from tables.index import StoredIndex
from tables.native_index import NativeIndex
from tables.restore import ChangelogBounds, Restore, require_own, trusted_start
from tables.ring import ResidentIndex, Ring, Verdict
from tables.rocksdb.errors import DamagedStoreError, UntrustedError
from tables.rocksdb.store import Store, StoredState
from tables.rocksdb.writes import Writes
from tables.table import LaneTable
from tests.support.at_once import at_once, make_ring
from tests.support.records.served_log import serve

ALPHABET = [stored_ids.encode_id(b"%c" % letter) for letter in b"abcdefghijklmnopqrstuvwxyz"]
DAY_S = 86_400.0


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

    def transact(self, ids: str) -> str:
        """One batch, an ID a letter; what was said of each, a letter a message."""
        return "".join(id_.name[0] for id_ in self.transact_ids(_ids(ids)))

    def transact_ids(self, ids: Sequence[bytes | None]) -> list[Verdict]:
        """One batch of encoded IDs."""
        checked = self.ring.check(ids)
        self.ring.apply(checked)
        self.next += len(ids)
        for sequence, id_ in enumerate(checked.new_ids, checked.first_sequence):
            self.append(*_slot(self.ring.capacity, sequence, id_))
        self.append(codec.META_KEY, codec.encode_meta(self.meta))
        self.end += 1
        self.cuts.append(self.end)
        return checked.verdicts

    def append(self, key: bytes, value: bytes | None) -> None:
        self.records.append(Record(self.end, key, value))
        self.end += 1

    def reopen(self, capacity: int) -> None:
        """Go on at another capacity, with nothing left but the changelog."""
        self.ring = make_ring(capacity, restored(self, None))

    @property
    def meta(self) -> Meta:
        ring = self.ring
        next_offsets, counts = {"orders": self.next}, {"orders": 4}
        return Meta(ring.capacity, ring.head, ring.floor, next_offsets, counts, self.incarnation)

    def last_meta(self) -> Meta:
        """Return the meta record at the end of the log."""
        return codec.decode_meta(self.records[-1].value or b"")

    def upto(self, end: int) -> "Log":
        """Return the log as it was when its high watermark was ``end``."""
        earlier = Log(self.ring.capacity, self.incarnation)
        earlier.records = [record for record in self.records if record.offset < end]
        earlier.end, earlier.next = end, self.next
        return earlier

    def bounds(self) -> ChangelogBounds:
        return ChangelogBounds(0, self.end, DAY_S)


def _ids(letters: str) -> list[bytes | None]:
    return [stored_ids.encode_id(letter.encode()) for letter in letters]


def _slot(capacity: int, sequence: int, encoded_id: bytes) -> tuple[bytes, bytes]:
    origin = Origin(0, 1_000 + sequence, 2_000 + sequence)
    return codec.ring_key(capacity, sequence), codec.ring_value(sequence, encoded_id, origin)


def restored(log: Log, store: Store | None, *, resident: bool = True, fetch: int = 1_000) -> Restore:
    """Bring the store to the log's end as the opening of a lane does; ``fetch`` records at a time."""
    state = store.state() if store else None
    start = trusted_start(state, log.bounds(), indexed=not resident)
    restore = Restore(store, store.begin_epoch() if store else 0, resident=resident)
    at_once(restore.load())
    records = [record for record in log.records if start <= record.offset < log.end]
    for begin in range(0, len(records), fetch):
        restore.consume(records[begin : begin + fetch])
    restore.finish()
    return restore


def _ring(log: Log, store: Store, *, resident: bool = True, capacity: int | None = None) -> Ring:
    """Return the ring of a lane that was opened over this store and changelog."""
    capacity = log.ring.capacity if capacity is None else capacity
    restore = restored(log, store, resident=resident)
    return make_ring(capacity, restore, None if resident else _index(store, capacity))


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


def contents(store: Store) -> tuple[object, ...]:
    """All that a store holds, save for the time of its writing."""
    state = store.state()
    entries = {key: value for key, value in store._db.items() if key != b"m"}
    return (state and state._replace(written_at=0.0)), entries


def _index_size(store: Store) -> int:
    return sum(key[:1] == b"i" for key, _ in cast("Iterator[tuple[bytes, bytes]]", store._db.items()))


@pytest.fixture
def new_store(tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Make empty stores."""
    made: list[Store] = []

    def new() -> Store:
        made.append(Store(tmp_path / f"store-{len(made)}"))
        return made[-1]

    yield new
    for store in made:
        store.close()


@pytest.fixture
def store(new_store: Callable[[], Store]) -> Store:
    return new_store()


both_kinds = pytest.mark.parametrize("resident", [True, False], ids=["resident index", "stored index"])


def _history(incarnation: str = "0011223344556677") -> Log:
    """Evictions, IDs accepted again, a batch larger than the ring, batches without a new ID."""
    log = Log(5, incarnation)
    for name in ("abc", "cba", "defg", "a", "", "bcdabcdhi", "ihd", "jklmna", "b", "ab"):
        log.transact(name)
    return log


# -- what comes back -----------------------------------------------------------------------------------------------


@both_kinds
def test_position_is_behind_the_last_record(store: Store, resident: bool) -> None:
    """The position follows the last meta record and not its transaction's marker, however it was fetched."""
    log = _history()

    restore = restored(log, store, resident=resident, fetch=2)

    state = store.state()
    assert state is not None
    assert state.position == restore.position == log.end - 1 == log.records[-1].offset + 1
    assert restore.count == len(log.records)


@both_kinds
def test_incremental(store: Store, new_store: Callable[[], Store], resident: bool) -> None:
    """A store that is behind is brought up by the missing records and the one before them, no more."""
    log = _history()
    cut = log.cuts[6]
    restored(log.upto(cut), store, resident=resident)

    restore = restored(log, store, resident=resident)

    assert restore.count == 1 + sum(record.offset >= cut for record in log.records)
    fresh = new_store()
    restored(log, fresh, resident=resident)
    assert contents(store) == contents(fresh)


def test_large_looks_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore without a store collects nothing to write."""
    monkeypatch.setattr("tables.restore.FLUSH_RECORDS", 3)
    restore = Restore(None, 0, resident=True)

    restore.consume(_history().records)

    assert len(restore._pending) < 3


def _compacted(log: Log) -> list[Record]:
    """Return the records after compaction, with the last of the meta records only."""
    return [record for record in log.records[:-1] if record.key != codec.META_KEY] + log.records[-1:]


@both_kinds
async def test_a_compacted_changelog_is_written_as_it_comes(
    new_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch, resident: bool
) -> None:
    """A compacted changelog is written as it is read, although only its last record names its owner.

    A store that was not built to its end is not trusted.
    """
    monkeypatch.setattr("tables.restore.FLUSH_RECORDS", 2)
    log = Log(50)
    for letters in ("abc", "defg", "hi", "jklm"):
        log.transact(letters)
    *slots, meta = _compacted(log)
    store = new_store()
    restore = Restore(store, store.begin_epoch(), resident=resident)
    at_once(restore.load())
    for slot in slots:
        restore.consume([slot])
        assert len(restore._pending) < 2
    assert (len(list(store.slots())), store.state(), store.unfinished) == (12, None, True)
    store.close()

    other = Log(50, incarnation="another one")
    other.transact("xyz")
    table = LaneTable(store.path, TableOptions(50, 50 if resident else 5))
    opened = await _served(other, monkeypatch)(table)
    assert (opened.reused, opened.records) == (False, len(other.records))
    assert known(table.ring) == known(other.ring)
    table.close()

    whole = new_store()
    restore = Restore(whole, whole.begin_epoch(), resident=resident)
    at_once(restore.load())
    restore.consume([*slots, meta])
    restore.finish()
    assert not whole.unfinished
    assert known(_ring(log, whole, resident=resident, capacity=50)) == known(log.ring)


# -- whether the store is trusted -------------------------------------------------------------------------------------


def _state(position: int, *, age_s: float = 0.0, indexed: bool = False) -> StoredState:
    return StoredState(Meta(5, 3, 0, {}, {}, "0011223344556677"), position, time.time() - age_s, indexed)


@pytest.mark.parametrize(
    ("position", "start", "high_watermark", "expected"),
    [
        (None, 0, 0, 0),
        (None, 40, 90, 40),
        (70, 40, 90, 69),
        (90, 40, 90, 89),
        (41, 40, 90, 40),
        (40, 40, 90, 40),
        (39, 40, 90, 40),  # only a marker lies between
        (0, 0, 0, 0),
    ],
)
def test_trusted(position: int | None, start: int, high_watermark: int, expected: int) -> None:
    """Reading begins one record before the position, and never before the changelog's start."""
    state = None if position is None else _state(position)

    assert trusted_start(state, ChangelogBounds(start, high_watermark, DAY_S), indexed=False) == expected


def test_position_beyond_the_end() -> None:
    """A store that is ahead of the changelog reflects what was lost there."""
    with pytest.raises(UntrustedError, match="position 91 lies beyond the changelog's end 90"):
        trusted_start(_state(91), ChangelogBounds(40, 90, DAY_S), indexed=False)


def test_position_before_the_start() -> None:
    """A store that is behind the changelog's start has missed what was deleted there."""
    with pytest.raises(UntrustedError, match="position 38 lies before the changelog's start 40"):
        trusted_start(_state(38), ChangelogBounds(40, 90, DAY_S), indexed=False)


def test_age() -> None:
    """A store is trusted for half of the time for which tombstones are kept, and no longer."""
    bounds = ChangelogBounds(0, 90, 1_000.0)

    assert trusted_start(_state(70, age_s=490), bounds, indexed=False) == 69
    with pytest.raises(UntrustedError, match="it is 510 s old"):
        trusted_start(_state(70, age_s=510), bounds, indexed=False)


def test_index_missing() -> None:
    """A store without index does for a resident one only; a store with index does for both."""
    bounds = ChangelogBounds(0, 90, DAY_S)

    with pytest.raises(UntrustedError, match="it holds no index"):
        trusted_start(_state(70), bounds, indexed=True)
    assert trusted_start(_state(70, indexed=True), bounds, indexed=True) == 69
    assert trusted_start(_state(70, indexed=True), bounds, indexed=False) == 69


@both_kinds
def test_wrong_incarnation(store: Store, resident: bool) -> None:
    """A changelog that was deleted and created again is not the one that the store knows, even if it says the same."""
    restored(_history(), store, resident=resident)
    anew = _history()
    anew.records = [
        record._replace(
            value=codec.encode_meta(codec.decode_meta(record.value)._replace(incarnation="f" * 16))
        )
        if record.key == codec.META_KEY and record.value
        else record
        for record in anew.records
    ]

    with pytest.raises(
        UntrustedError, match="incarnation 0011223344556677, the changelog's is ffffffffffffffff"
    ):
        restored(anew, store, resident=resident)


@both_kinds
def test_head_above(store: Store, resident: bool) -> None:
    """A store whose head is above that of the record found in its place reflects lost records."""
    log = _history()
    restored(log, store, resident=resident)
    lost = log.upto(log.cuts[3])
    lost.end = log.end + 1  # the log went on, over records that compaction has removed since
    lost.append(codec.META_KEY, codec.encode_meta(log.last_meta()._replace(head=9)))

    with pytest.raises(UntrustedError, match=r"its head [0-9]+ is above the changelog's 9"):
        restored(lost, store, resident=resident)


@both_kinds
def test_head_above_a_later_one(store: Store, resident: bool) -> None:
    """A head never goes back: a later meta record with a smaller one is noticed although the first record fits."""
    log = _history()
    restored(log, store, resident=resident)
    log.append(codec.META_KEY, codec.encode_meta(log.last_meta()._replace(head=9)))

    with pytest.raises(UntrustedError, match=r"its head [0-9]+ is above the changelog's 9"):
        restored(log, store, resident=resident)


def _regrown(log: Log, cut: int, *batches: str) -> Log:
    """Return the log without what lies behind ``cut``, and with these batches instead; the input went on meanwhile."""
    regrown = log.upto(log.cuts[cut])
    regrown.reopen(5)
    for batch in batches:
        regrown.transact(batch)
    return regrown


@both_kinds
def test_tail_lost_and_regrown(store: Store, resident: bool) -> None:
    """A changelog that holds another meta record where the store left it is another one, though head and end fit."""
    log = _history()
    cut = log.cuts[3]  # "defg": four slots, then the meta record
    restored(log.upto(cut), store, resident=resident)
    regrown = _regrown(log, 2, "stuv", "wxyz")
    assert [record.key for record in regrown.records if record.offset == cut - 2] == [codec.META_KEY]

    with pytest.raises(
        UntrustedError, match=f"another record at {cut - 2}: it lost its last records and was written again"
    ):
        restored(regrown, store, resident=resident)


@both_kinds
@pytest.mark.parametrize(
    "batches", [("", "stuvwxyz"), ("s", "tuvwxyz"), ("stuvwx", "yz"), ("stu", "", "", "vw", "xyz")]
)
def test_tail_regrown_whatever_the_pieces(store: Store, resident: bool, batches: tuple[str, ...]) -> None:
    """A tail that grew again is never trusted, whatever records or markers replace the old ones."""
    log = _history()
    restored(log.upto(log.cuts[3]), store, resident=resident)

    with pytest.raises(UntrustedError):
        restored(_regrown(log, 2, *batches), store, resident=resident)


@both_kinds
def test_meta_record_compacted_away(store: Store, new_store: Callable[[], Store], resident: bool) -> None:
    """A store behind compacted records is not trusted, since it looks like a lost tail.

    A rebuilt store knows all IDs.
    """
    log = _history()
    cut = log.cuts[3]
    restored(log.upto(cut), store, resident=resident)
    before = contents(store)
    log.records = [record for record in log.records if record.offset != cut - 2]

    with pytest.raises(UntrustedError, match=f"its last record, at {cut - 2}, is no longer in the changelog"):
        restored(log, store, resident=resident)
    assert contents(store) == before
    assert known(_ring(log, new_store(), resident=resident)) == known(log.ring)


@both_kinds
def test_nothing_left_to_compare(store: Store, resident: bool) -> None:
    """A store whose last record is gone from the changelog is not trusted, even if nothing follows it."""
    log = _history()
    restored(log, store, resident=resident)
    log.records = log.records[:-1]

    with pytest.raises(UntrustedError, match="no longer holds its last record"):
        restored(log, store, resident=resident)


@both_kinds
def test_position_stays_behind_a_meta_record(store: Store, resident: bool) -> None:
    """The position stays before a transaction that was read in part, so that the next restore can verify it."""
    log = _history()
    cut = log.cuts[3]
    half = [record for record in log.records if record.offset < cut + 1]  # one slot of the next transaction
    restore = Restore(store, store.begin_epoch(), resident=resident)
    at_once(restore.load())
    restore.consume(half)
    restore.finish()

    state = store.state()
    assert state is not None
    assert state.position == restore.position == cut - 1
    assert known(_ring(log, store, resident=resident)) == known(log.ring)


# -- single records -----------------------------------------------------------------------------------------------


@both_kinds
def test_older_sequence_does_not_apply(store: Store, resident: bool) -> None:
    """A slot keeps its newest occupant whatever the order of the records, in one restore and over two."""
    log = Log(5)
    newer, older = _slot(5, 8, ALPHABET[0]), _slot(5, 3, ALPHABET[1])
    log.append(*newer)
    log.append(*older)
    log.ring = Ring(5, 9, 0)
    log.transact("")
    restore = restored(log, store, resident=resident)
    assert [codec.decode_ring(*slot).sequence for slot in store.slots()] == [8]
    assert known(make_ring(5, restore, None if resident else _index(store, 5))) == "a"

    log.append(*older)
    log.transact("")
    restore = restored(log, store, resident=resident)

    assert [codec.decode_ring(*slot).sequence for slot in store.slots()] == [8]
    assert known(make_ring(5, restore, None if resident else _index(store, 5))) == "a"


@both_kinds
def test_tombstone(store: Store, resident: bool) -> None:
    """A tombstone frees its slot, in the restore that put it there and in a later one; what follows it stands."""
    log = Log(5)
    log.append(*_slot(5, 0, ALPHABET[0]))
    log.append(*_slot(5, 1, ALPHABET[1]))
    log.append(codec.ring_key(5, 0), None)
    log.append(codec.ring_key(5, 4), None)
    log.ring = Ring(5, 2, 2)
    log.transact("")
    restored(log, store, resident=resident)
    assert [codec.decode_ring(*slot).sequence for slot in store.slots()] == [1]

    log.append(codec.ring_key(5, 1), None)
    log.append(codec.ring_key(5, 0), None)
    log.append(*_slot(5, 5, ALPHABET[2]))
    log.ring = Ring(5, 6, 2)
    log.transact("")
    restore = restored(log, store, resident=resident)

    assert [codec.decode_ring(*slot).sequence for slot in store.slots()] == [5]
    assert {slot.sequence for slot in restore.slots()} == ({5} if resident else set())
    assert known(make_ring(5, restore, None if resident else _index(store, 5))) == "c"


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
    """A record that this version cannot read is refused, and never skipped."""
    log = Log(5)
    log.transact("ab")
    log.append(key, value)

    with pytest.raises(FormatError, match=says):
        restored(log, store, resident=resident)


# -- another capacity ---------------------------------------------------------------------------------------------


@both_kinds
def test_id_in_a_slot_of_a_former_size(store: Store, new_store: Callable[[], Store], resident: bool) -> None:
    """An ID that lives is not forgotten because a slot is overwritten in which it died under another size."""
    log = Log(2)
    for capacity, batch in [(2, "xy"), (4, "za"), (2, "bcdefa"), (4, "g"), (4, "h")]:
        log.reopen(capacity)
        assert log.transact(batch) == "A" * len(batch)

        assert known(_ring(log, store, resident=resident)) == known(log.ring)
        assert known(_ring(log, new_store(), resident=resident)) == known(log.ring)
    # h11 overwrote a3 in the fourth slot of four; a9 is another acceptance of it.
    assert known(log.ring) == "fagh"


# -- damage -----------------------------------------------------------------------------------------------------------


def _served(log: Log, monkeypatch: pytest.MonkeyPatch) -> Callable[[LaneTable], Awaitable[Restored]]:
    """Open tables over this log; only the consumer that would fetch its records is replaced."""

    async def open_table(table: LaneTable) -> Restored:
        _, restored = await table.open(LogReader(KafkaSettings()), "changelog", 0, log.bounds())
        return restored

    serve(monkeypatch, lambda: log.records)
    return open_table


@both_kinds
@pytest.mark.parametrize("at", [0.05, 0.3, 0.6, 0.9])
async def test_damage_heals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resident: bool, at: float
) -> None:
    """Damage to RocksDB, found on opening or only by a batch, is healed by opening again: the changelog has it all."""
    log = Log(2_000)
    ids = [stored_ids.encode_id(b"%d" % index) for index in range(2_000)]
    times = [0] * len(ids)
    log.transact_ids(ids)
    open_table = _served(log, monkeypatch)
    table = LaneTable(tmp_path / "orders-0", TableOptions(2_000, 2_000 if resident else 0))
    await open_table(table)
    table.close()
    Store(tmp_path / "orders-0").close()  # moves RocksDB's log into a table file
    (file,) = (tmp_path / "orders-0").glob("*.sst")
    content = bytearray(file.read_bytes())
    begin = int(len(content) * at)
    content[begin : begin + 64] = b"\xff" * 64
    file.write_bytes(content)

    await open_table(table)
    table.seconds_covered()  # told by pages, and of a damaged RocksDB it breaks none
    try:
        verdicts = table.check(ids, times).verdicts
    except DamagedStoreError:
        await open_table(table)
        verdicts = table.check(ids, times).verdicts
    afterwards = await open_table(table)
    table.close()

    assert verdicts == [Verdict.DUPLICATE] * 2_000
    assert afterwards.reused


async def test_covered_seconds_are_not_negative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest ID of a ring may have an older timestamp than the oldest: its message came late, from another partition."""

    def late(capacity: int, sequence: int, encoded_id: bytes) -> tuple[bytes, bytes]:
        origin = Origin(0, sequence, 9_000 - 1_000 * sequence)
        return codec.ring_key(capacity, sequence), codec.ring_value(sequence, encoded_id, origin)

    monkeypatch.setitem(globals(), "_slot", late)
    log = Log(8)
    log.transact("AB")
    open_table = _served(log, monkeypatch)
    table = LaneTable(tmp_path / "orders-0", TableOptions(8, 8))
    await open_table(table)

    assert table.seconds_covered() == 0
    table.close()


class Counting(Store):
    """Counts how often all slots are read."""

    reads = 0

    def slots(self) -> Iterator[tuple[bytes, bytes]]:
        Counting.reads += 1
        return super().slots()

    def slot_values(self, capacity: int, first: int) -> Iterator[bytes]:
        Counting.reads += 1
        return super().slot_values(capacity, first)


async def _reopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Log, LaneTable], None]
) -> tuple[LaneTable, Restored, int]:
    """Open a table again in the same process after something happens; count how often all slots were read."""
    log = _history()
    open_table = _served(log, monkeypatch)
    monkeypatch.setattr("tables.rocksdb.lane_store.Store", Counting)
    table = LaneTable(tmp_path / "orders-0", TableOptions(5, 5))
    await open_table(table)
    Counting.reads = 0
    happens(log, table)
    restored = await open_table(table)
    assert known(table.ring) == known(log.ring)
    assert (table.ring.head, table.ring.floor, table.ring.low) == (
        log.ring.head,
        log.ring.floor,
        log.ring.low,
    )
    assert len(cast("ResidentIndex | NativeIndex", table.ring.index)) == len(log.ring)
    assert (table.meta, table.position) == (log.last_meta(), log.records[-1].offset + 1)
    return table, restored, Counting.reads


async def test_what_is_in_memory_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane that comes back, or reopens after a failure, reads only newer records and continues with its ring."""

    def others_write(log: Log, _: LaneTable) -> None:
        log.transact("vwv")

    table, restored, reads = await _reopened(tmp_path, monkeypatch, others_write)
    table.close()
    store = Store(tmp_path / "orders-0")
    sequences = sorted(codec.decode_ring(*slot).sequence for slot in store.slots())
    store.close()

    assert (restored.kept, restored.reused, restored.records, reads) == (True, True, 4, 0)
    # What died meanwhile may be there still, in a chunk.
    assert sequences[-len(table.ring) :] == list(range(table.ring.low, table.ring.head))


def _cleared(log: Log, _: LaneTable) -> None:
    log.ring = Ring(5, log.ring.head, log.ring.head)
    log.transact("q")


def _overrun(log: Log, _: LaneTable) -> None:
    log.transact("ghijklmnop")


def _closed(log: Log, table: LaneTable) -> None:
    table.close()
    log.transact("v")


@pytest.mark.parametrize("happens", [_cleared, _overrun, _closed])
async def test_where_memory_does_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Log, LaneTable], None]
) -> None:
    """A lane reads all slots if its table was forgotten by order, overrun by more than a ring, or closed."""
    table, restored, reads = await _reopened(tmp_path, monkeypatch, happens)
    table.close()

    assert (restored.kept, restored.reused, reads) == (False, True, 1)


def _turned_round(log: Log) -> None:
    """Turn the last two ring records round: no lane writes so."""
    one, two = [n for n, record in enumerate(log.records) if record.key[:1] == codec.KIND_RING][-2:]
    first, second = log.records[one], log.records[two]
    log.records[one] = Record(first.offset, second.key, second.value)
    log.records[two] = Record(second.offset, first.key, first.value)


def _with_a_hole(log: Log) -> None:
    """Remove a live ring record."""
    hole = next(
        number
        for number in range(len(log.records) - 1, 0, -1)
        if log.records[number].key[:1] == codec.KIND_RING
    )
    del log.records[hole]


@pytest.mark.skipif(native.core is None, reason=native.spoken)
@pytest.mark.parametrize("irregular", [_turned_round, _with_a_hole])
@pytest.mark.parametrize("disk", [False, True])
async def test_what_is_irregular_is_restored_in_python(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    irregular: Callable[[Log], None],
    disk: bool,
) -> None:
    """Records that are out of order or incomplete give the same ring with and without the native core."""
    log = Log(9)
    log.transact("ab")
    open_table = _served(log, monkeypatch)
    table = LaneTable(tmp_path / "orders-0", TableOptions(9, 9))
    if disk:
        await open_table(table)
        table.close()
    log.transact("cdef")
    irregular(log)

    await open_table(table)
    first = known(table.ring)
    table.close()
    with patch.object(native, "core", None):
        reference = LaneTable(tmp_path / "orders-1", TableOptions(9, 9))
        await open_table(reference)
    reference.close()
    again = await open_table(table)
    table.close()

    assert first == known(reference.ring)
    assert len(first) >= 5
    assert (again.reused, known(table.ring)) == (irregular is _turned_round, first)
    assert "without the native core" in caplog.text or "rebuilt from the changelog" in caplog.text


@pytest.mark.skipif(native.core is None, reason=native.spoken)
@pytest.mark.parametrize("capacity", [4, 40])
async def test_slots_and_chunks_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capacity: int
) -> None:
    """A RocksDB store that Python and the core wrote in turn yields the newest record of each slot.

    Nothing is rebuilt.
    """
    log = Log(capacity)
    open_table = _served(log, monkeypatch)
    table = LaneTable(tmp_path / "orders-0", TableOptions(capacity, capacity))
    for number, batch in enumerate(("abc", "d", "", "efgh", "ijklmnop", "qr", "s", "ta", "uvb", "wxyz")):
        log.transact(batch)
        core = None if number % 3 == 1 else native.core
        with patch.object(native, "core", core):
            restored = await open_table(table)
        assert known(table.ring) == known(log.ring)
        assert restored.reused is (number > 0)
        if number % 2:
            table.close()
    table.close()

    assert "rebuilt" not in caplog.text


async def test_incarnation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new changelog gets its own incarnation; one with records keeps the incarnation that they name."""

    async def incarnation(name: str, log: Log) -> str:
        table = LaneTable(tmp_path / name, TableOptions(5, 5))
        await _served(log, monkeypatch)(table)
        meta = table.record(table.check([], []), [], {}, {}, {}).meta
        table.close()
        return meta.incarnation

    assert await incarnation("one", Log(5)) != await incarnation("two", Log(5))
    assert await incarnation("three", _history(incarnation="ab")) == "ab"


async def test_slot_of_a_later_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A RocksDB that this version cannot read is rebuilt from the changelog, which it can."""
    log = _history()
    open_table = _served(log, monkeypatch)
    table = LaneTable(tmp_path / "orders-0", TableOptions(5, 5))
    await open_table(table)
    table.close()
    store = Store(tmp_path / "orders-0")
    store._db.put(b"s" + codec.ring_key(5, 3)[1:], b"\x02")
    store.close()

    restored = await open_table(table)

    assert (restored.reused, restored.records) == (False, len(log.records))
    assert known(table.ring) == known(log.ring)
    table.close()


@pytest.mark.skipif(native.core is None, reason=native.spoken)
async def test_a_chunk_that_cannot_be_read_is_rebuilt_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged chunk, met while others are still unread, closes RocksDB before the store is rebuilt."""
    log = Log(40)
    open_table = _served(log, monkeypatch)
    table = LaneTable(tmp_path / "orders-0", TableOptions(40, 40))
    for batch in ("abc", "defg", "hijk"):
        log.transact(batch)
        await open_table(table)
        table.close()
    store = Store(tmp_path / "orders-0")
    first, *others = store.chunk_keys().all()
    assert others
    store._db.put(first, store.chunk_at(first)[:-1])
    store.close()

    try:
        restored = await open_table(table)
    except PrerequisiteError as error:
        pytest.fail(str(error))

    assert (restored.reused, restored.records) == (False, len(log.records))
    assert known(table.ring) == known(log.ring)
    assert caplog.text.count("is rebuilt from the changelog") == 1
    table.close()


async def test_record_of_a_later_version_in_the_changelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changelog that this version cannot read is refused, and rebuilding does not help; it is not passed over."""
    log = _history()
    log.append(b"\x02", b"")
    table = LaneTable(tmp_path / "orders-0", TableOptions(5, 5))

    with pytest.raises(FormatError, match="unknown to this version"):
        await _served(log, monkeypatch)(table)
    table.close()


# -- the index in RocksDB -----------------------------------------------------------------------------------------


def _persist(
    store: Store, index: StoredIndex, first_sequence: int, letters: str, live_from: int | None = None
) -> None:
    """Write the new IDs of a committed batch as a lane does."""
    ids = [id_ for id_ in _ids(letters) if id_ is not None]

    def fill(writes: Writes) -> None:
        index.persist(writes, first_sequence, ids, live_from)
        for sequence, id_ in enumerate(ids, first_sequence):
            writes.put_slots([_slot(3, sequence, id_)])

    store.write(store.epoch, _state(1, indexed=True), fill)


def _entries(store: Store, letters: str) -> dict[str, int]:
    ids: Sequence[bytes] = [id_ for id_ in _ids(letters) if id_ is not None]
    found = zip(letters, store.sequences(ids), strict=True)
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
    assert _index_size(store) == 3


def test_stored_index_keeps_who_came_after_a_clearing(store: Store) -> None:
    """An ID that was forgotten by order and came again keeps its newer entry when its older slot, still there, is overwritten."""
    index = _index(store, 3)
    _persist(store, index, 0, "abc", 0)
    _persist(store, index, 3, "b", 3)  # after a clearing at 3; overwrites a0
    _persist(store, index, 4, "x", 3)  # overwrites b1

    assert _entries(store, "abx") == {"b": 3, "x": 4}


def test_stored_index_keeps_who_came_back(store: Store) -> None:
    """An ID that was accepted again keeps its newer entry when its older slot is overwritten."""
    index = _index(store, 3)
    _persist(store, index, 0, "abc")
    _persist(store, index, 3, "da")  # one write: d overwrites a0, and a4 is noted
    assert _entries(store, "abcd") == {"c": 2, "d": 3, "a": 4}

    _persist(store, index, 5, "b")
    _persist(store, index, 6, "e")  # overwrites d3; a4 stays
    assert _entries(store, "abcde") == {"a": 4, "b": 5, "e": 6}


def test_stored_index_keeps_who_lives_elsewhere(store: Store) -> None:
    """An ID that died in this slot under a former size and lives in another one keeps its entry."""

    def fill(writes: Writes) -> None:
        writes.put_slots([_slot(3, 0, ALPHABET[0])])
        writes.put_index(ALPHABET[0], 9)

    store.write(store.epoch, _state(1, indexed=True), fill)
    _persist(store, _index(store, 3), 12, "b")

    assert _entries(store, "ab") == {"a": 9, "b": 12}


def test_restored_index_is_not_turned_back(store: Store) -> None:
    """A record of another slot with an older acceptance of an ID leaves the newer entry as it is."""
    log = Log(3)
    log.append(*_slot(3, 9, ALPHABET[0]))
    log.ring = Ring(3, 10, 0)
    log.transact("")
    restored(log, store, resident=False)
    log.append(*_slot(4, 3, ALPHABET[0]))
    log.transact("")
    restored(log, store, resident=False)

    assert _entries(store, "a") == {"a": 9}


def test_restored_index_is_as_small_as_the_ring(store: Store) -> None:
    """A store that follows the changelog restore by restore forgets in the index what its slots forget."""
    log = Log(5)
    for number in range(40):
        log.transact("abcdefghijklmnopqrstuvwxyz"[number % 17 : number % 17 + 3])
        restored(log, store, resident=False)

        assert _index_size(store) == len(log.ring)


@pytest.mark.parametrize(
    ("theirs", "refused"),
    [(("", ""), True), (("rf", "orders"), False), (("rf-orders", "x"), True), (("rf", "other"), True)],
)
def test_whose_changelog(tmp_path: Path, theirs: tuple[str, str], refused: bool) -> None:
    """Records of another address never reach RocksDB."""
    meta = Meta(5, 1, 0, {}, {}, "0f", app=theirs[0], address=theirs[1])
    store = Store(tmp_path / "orders-0")
    restore = Restore(
        store,
        store.begin_epoch(),
        resident=True,
        check=lambda item: require_own(item, "rf", "orders", "log/0"),
    )
    records = [
        Record(0, *_slot(5, 0, stored_ids.encode_id(b"a"))),
        Record(1, codec.META_KEY, codec.encode_meta(meta)),
    ]
    try:
        if refused:
            with pytest.raises(ForeignChangelogError, match=r"^log/0 holds the rings of address "):
                restore.consume(records)
            assert store.state() is None
            assert list(store.slots()) == []
        else:
            restore.consume(records)
            restore.finish()
            assert len(list(store.slots())) == 1
    finally:
        store.close()


def test_rocksdb_of_a_version_that_named_no_owner(tmp_path: Path) -> None:
    """RocksDB and changelog are compared by meaning: neither an upgrade nor a record with more fields causes a rebuild."""
    log = Log(5)
    log.transact("a")
    store = Store(tmp_path / "orders-0")
    try:
        restored(log, store)
        last = log.records[-1]
        document = json.loads(last.value or b"") | {"later": 1}
        log.records[-1] = last._replace(value=json.dumps(document).encode())
        log.transact("b")

        assert restored(log, store).count < len(log.records)
    finally:
        store.close()
