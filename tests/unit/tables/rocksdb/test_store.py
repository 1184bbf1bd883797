import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.protocol import stored_ids
from tables import codec
from tables.codec import FormatError, Meta, Origin, Slot
from tables.rocksdb.errors import DamagedStoreError, StaleEpochError
from tables.rocksdb.folder import BUFFERS_BYTES_MAX, shared
from tables.rocksdb.store import Store, StoredState, Writes

MANY = 2_000
"""Slots that fill more than one block of RocksDB's files."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "orders-0")
    yield opened
    opened.close()


def _state(head: int = 0, position: int = 0, *, indexed: bool = False) -> StoredState:
    meta = Meta(10, head, 0, {"orders": head}, {"orders": 4}, "0011223344556677")
    return StoredState(meta, position, 1_700_000_000.25, indexed)


def _slot(sequence: int, capacity: int = 10) -> tuple[bytes, bytes, Slot]:
    origin = Origin(0, 100 + sequence, 1_000 + sequence)
    encoded = stored_ids.encode_id(b"id-%d" % sequence)
    key, value = codec.ring_key(capacity, sequence), codec.ring_value(sequence, encoded, origin)
    return key, value, Slot(capacity, sequence, encoded, origin)


def _fill(writes: Writes) -> None:
    writes.put_slots([_slot(4)[:2]])


def _put(store: Store, *sequences: int, capacity: int = 10) -> None:
    slots = [_slot(sequence, capacity)[:2] for sequence in sequences]
    store.write(store.epoch, _state(max(sequences) + 1, 2), lambda writes: writes.put_slots(slots))


def _sequences(store: Store) -> list[int]:
    return sorted(codec.decode_ring(*slot).sequence for slot in store.slots())


def test_layout(store: Store) -> None:
    """These bytes are on disks: a change that breaks this test needs a new format version."""

    def fill(writes: Writes) -> None:
        writes.put_slots([_slot(13, capacity=20_000)[:2]])
        writes.put_index(b"\x00A-1", 13)

    store.write(store.epoch, _state(14, 99), fill)

    assert dict(store._db.items()) == {
        b"m": b'{"meta": "{\\"format\\":1,\\"capacity\\":10,\\"head\\":14,\\"floor\\":0,\\"next_offsets\\":'
        b'{\\"orders\\":14},\\"partition_counts\\":{\\"orders\\":4},\\"incarnation\\":\\"0011223344556677\\",'
        b'\\"older\\":[],\\"persistent\\":true,\\"topic_ids\\":{},\\"app\\":\\"\\",\\"address\\":\\"\\",\\"max_age_ms\\":0}", '
        b'"position": 99, "written_at": 1700000000.25, "indexed": false}',
        bytes.fromhex("7300004e200000000d"): bytes.fromhex(
            "01000000000000000d00000000000000000000007100000000000003f500"
        )
        + b"id-13",
        b"i\x00A-1": bytes.fromhex("000000000000000d"),
    }


def test_write_is_all_or_nothing(store: Store) -> None:
    _put(store, 3)
    before = store.state()

    def fill(writes: Writes) -> None:
        _fill(writes)
        raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        store.write(store.epoch, _state(99, 99), fill)

    assert store.state() == before
    assert _sequences(store) == [3]


def test_stale_epoch(store: Store) -> None:
    """A write of an older or a later opening is refused, and nothing is written; the present one may write."""
    old = store.begin_epoch()
    _put(store, 3)
    before = store.state()
    new = store.begin_epoch()
    for epoch in (old, new + 1):
        with pytest.raises(StaleEpochError, match=f"write of opening {epoch}, the lane is at opening {new}"):
            store.write(epoch, _state(99, 99), _fill)
    assert store.state() == before
    assert _sequences(store) == [3]

    store.write(new, _state(5, 6), _fill)
    assert store.state() == _state(5, 6)
    assert _sequences(store) == [3, 4]


def test_epochs_are_those_of_the_process(store: Store, tmp_path: Path) -> None:
    """An epoch is never given twice, even after a store is created afresh at the same place."""
    epochs = [store.begin_epoch(), store.begin_epoch()]
    store.close()
    afresh = Store.create_afresh(store.path)
    other = Store(tmp_path / "orders-1")
    epochs += [afresh.begin_epoch(), other.begin_epoch(), afresh.begin_epoch()]

    assert len(set(epochs)) == 5
    with pytest.raises(StaleEpochError):
        afresh.write(epochs[1], _state(), lambda _: None)
    assert afresh.state() is None
    afresh.close()
    other.close()


def test_second_open(store: Store) -> None:
    """A folder that is open in this process cannot be opened again, even if another store of it is closed twice."""
    store.close()
    reopened = Store(store.path)
    store.close()
    fault = rf"^{re.escape(str(store.path))} is in use by another process: .*app\.instance"
    with pytest.raises(PrerequisiteError, match=fault):
        Store(store.path)
    reopened.close()


def test_read_only(store: Store, tmp_path: Path) -> None:
    """A read-only store beside the running worker reads all that was written, and writes nothing; a missing one is an error."""
    _put(store, 3)
    look = Store(store.path, read_only=True)

    assert _sequences(look) == [3]
    assert look.state() == store.state()
    with pytest.raises(Exception, match="read only"):
        look.write(look.epoch, _state(99, 99), lambda _: None)
    look.close()
    assert store.state() == _state(4, 2)
    with pytest.raises(DamagedStoreError, match="No such file"):
        Store(tmp_path / "orders-1", read_only=True)


@pytest.mark.parametrize("damaged", [True, False])
def test_create_afresh(tmp_path: Path, damaged: bool) -> None:
    """A store that is created afresh is empty and works, whatever its folder held, or if there is none."""
    path = tmp_path / "orders-0"
    if damaged:
        store = Store(path)
        _put(store, 3)
        store.close()
        (path / "CURRENT").write_bytes(b"garbage")

    afresh = Store.create_afresh(path)

    assert (afresh.state(), _sequences(afresh)) == (None, [])
    _put(afresh, 4)
    assert _sequences(afresh) == [4]
    afresh.close()


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """Return a closed store with :data:`MANY` slots in one file of several blocks."""
    path = tmp_path / "orders-0"
    store = Store(path)
    _put(store, *range(MANY), capacity=MANY)
    store.close()
    Store(path).close()  # moves the log's contents into a table file
    return path


def _overwrite(path: Path, pattern: str, at: float) -> None:
    """Write 64 bytes of 0xff at that share of the one file of this name."""
    (file,) = path.glob(pattern)
    content = bytearray(file.read_bytes())
    begin = int((len(content) - 64) * at)
    content[begin : begin + 64] = b"\xff" * 64
    file.write_bytes(content)


@pytest.mark.parametrize("pattern", ["CURRENT", "MANIFEST-*", "*.sst"])
@pytest.mark.parametrize("content", [b"garbage\n", b""], ids=["garbage", "empty"])
@pytest.mark.parametrize("name", ["clock-0", "lock hold by", "permission denied"])
def test_file_of_garbage(full: Path, tmp_path: Path, pattern: str, content: bytes, name: str) -> None:
    """Files of another format are damage, and no folder in use, even if its name resembles a message about a lock."""
    path = full.rename(tmp_path / name)
    (file,) = path.glob(pattern)
    file.write_bytes(content)

    with pytest.raises(DamagedStoreError, match=str(path)):
        Store(path)


def _slots_of_keys(store: Store) -> bool:
    slots = [_slot(index, MANY) for index in range(MANY)]
    return store.slots_of([key for key, _, _ in slots]) == [slot for _, _, slot in slots]


READ: tuple[Callable[[Store], bool], ...] = (
    lambda store: store.state() == _state(MANY, 2),
    lambda store: _sequences(store) == list(range(MANY)),
    _slots_of_keys,
)


@pytest.mark.parametrize("read", READ, ids=["state", "slots", "slots of keys"])
@pytest.mark.parametrize("at", [0.0, 0.5, 0.9, 0.98, 1.0])
def test_bytes_overwritten(full: Path, at: float, read: Callable[[Store], bool]) -> None:
    """Damage in a table file is reported at the latest when a reader reaches it, so no reader gets an incomplete result."""
    _overwrite(full, "*.sst", at)
    with contextlib.suppress(DamagedStoreError), contextlib.closing(Store(full)) as store:
        assert read(store)


@pytest.mark.parametrize("percent", [0, 10, 50, 90, 100])
def test_log_overwritten(store: Store, tmp_path: Path, percent: int) -> None:
    """Each write is in the files at once, so a kill loses none. Damage to RocksDB's log loses the writes behind it and no part of those before: the changelog repairs it."""
    for index in range(200):
        slots = [_slot(index, 500)[:2]]
        store.write(store.epoch, _state(index + 1, index + 1), lambda writes: writes.put_slots(slots))  # noqa: B023 - called at once
    path = shutil.copytree(store.path, tmp_path / "killed")
    _overwrite(path, "*.log", percent / 100)

    damaged = Store(path)
    state, sequences = damaged.state(), _sequences(damaged)
    damaged.close()

    count = 0 if state is None else state.position
    assert sequences == list(range(count))
    assert state == (_state(count, count) if count else None)
    assert abs(count - 2 * percent) <= 2


STATE = '{"meta": %s, "position": 1, "written_at": 1.0, "indexed": false}'


@pytest.mark.parametrize("raw", ["garbage", "[]", "null", "{}", STATE % "3", STATE % '"{}"'])
def test_damaged_state(store: Store, raw: str) -> None:
    store._db.put(b"m", raw.encode())

    with pytest.raises(FormatError):
        store.state()


@pytest.mark.parametrize("value", [b"", b"\x02" + _slot(3)[1][1:]], ids=["empty", "later version"])
def test_slot_that_cannot_be_read(store: Store, value: bytes) -> None:
    """A slot that this version cannot read is refused, on every way to it."""
    key = _slot(3)[0]
    store.write(store.epoch, _state(), lambda writes: writes.put_slots([(key, value)]))

    with pytest.raises(FormatError):
        list(store.slots())
    with pytest.raises(FormatError):
        store.slots_of([key])


@contextlib.contextmanager
def _unprivileged() -> Iterator[Path]:
    """Yield a folder that may be read but not written. Root, unhindered by file modes, becomes the user ``nobody`` for that time."""
    root = os.geteuid() == 0
    folder = Path(tempfile.mkdtemp(prefix="ringfence-"))
    for name in ("mine", "theirs"):
        Store(folder / name).close()
    for path in (folder / "theirs").iterdir():
        path.chmod(0o000 if path.name == "CURRENT" else 0o666)
    (folder / "theirs").chmod(0o777)
    for path in (folder, folder / "mine"):
        path.chmod(0o555)
    if root:
        os.seteuid(65_534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        for path in (folder, folder / "mine"):
            path.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["new", "mine", "theirs"])
def test_unusable_folder(name: str) -> None:
    """A folder without write access, or with an unreadable file, does not count as damaged: Ringfence must not delete it."""
    with _unprivileged() as folder:
        fault = rf"^{re.escape(str(folder / name))} cannot be written: .*app\.data_dir"
        with pytest.raises(PrerequisiteError, match=fault):
            Store(folder / name)


@pytest.mark.parametrize("below", ["orders-0", ""], ids=["data_dir is a file", "the folder is a file"])
def test_file_in_the_way(tmp_path: Path, below: str) -> None:
    """A file in place of a folder is not treated as damage, because deleting the folder would not help."""
    (tmp_path / "data").write_text("")

    with pytest.raises(PrerequisiteError, match=r"app\.data_dir"):
        Store(tmp_path / "data" / below)


def test_stores_share_what_is_not_in_files_yet(tmp_path: Path) -> None:
    """A worker of 64 lanes would have half a gigabyte there, with each store below what it may have alone."""
    opened = [Store(tmp_path / f"orders-{number}") for number in range(8)]
    slot = codec.ring_key(10, 0), b"v" * 100_000
    most = 0
    for _ in range(70):
        for store in opened:
            store.write(store.epoch, _state(1, 2), lambda writes: writes.put_slots([slot]))
            most = max(most, sum(_told(other, "cur-size-all-mem-tables") for other in opened))
            while _told(
                store, "num-immutable-mem-table"
            ):  # RocksDB lets a store go on while it is being flushed
                time.sleep(0.002)
    counted = shared().buffers.get_usage()
    for store in opened:
        store.close()

    assert BUFFERS_BYTES_MAX // 2 < most < BUFFERS_BYTES_MAX
    assert counted > 0


def _told(store: Store, name: str) -> int:
    return store._db.property_int_value(f"rocksdb.{name}") or 0
