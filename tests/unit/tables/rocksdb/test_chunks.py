import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tables import codec
from tables.codec import Chunk, FormatError, Meta, Origin
from tables.restore import Restore
from tables.rocksdb import chunks
from tables.rocksdb.store import STATE_KEY, Store, StoredState, Writes
from tests.support.at_once import at_once

CAPACITY = 4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "lane")
    opened.begin_epoch()
    yield opened
    opened.close()


def _value(sequence: int, name: bytes = b"") -> bytes:
    return codec.ring_value(sequence, b"\x00" + (name or b"%d" % sequence), Origin(0, sequence, 7))


def _write(store: Store, sequences: range, *slots: tuple[bytes, bytes], low: int = 0) -> None:
    """Write a transaction's slots as a chunk, or with keys of their own; remove what is dead then."""
    meta = Meta(CAPACITY, sequences.stop, 0, {}, {}, "incarnation")

    def fill(writes: Writes) -> None:
        if sequences:
            key = chunks.key_of(CAPACITY, sequences[-1])
            writes.put_chunk(key, Chunk.from_values(CAPACITY, map(_value, sequences)))
            store.chunk_keys().append(key)
        writes.put_slots(slots)
        for key in store.chunk_keys().dead(low):
            writes.delete_chunk(key)

    store.write(store.epoch, StoredState(meta, 10, 1.0, indexed=False), fill)


def _held(store: Store) -> dict[int, bytes]:
    restore = Restore(store, store.epoch, resident=True)
    at_once(restore.load())
    return {slot.sequence: slot.id for slot in restore.slots()}


def test_dead_chunks_are_removed(store: Store, tmp_path: Path) -> None:
    """A chunk goes when its last sequence is dead, and not before; known too after the store was opened again."""
    _write(store, range(3))
    store.close()
    again = Store(tmp_path / "lane")
    again.begin_epoch()
    _write(again, range(3, 6), low=2)

    assert sorted(codec.sequence_of(value) for _, value in again.slots()) == [0, 1, 2, 3, 4, 5]
    _write(again, range(6, 7), low=3)

    assert sorted(codec.sequence_of(value) for _, value in again.slots()) == [3, 4, 5, 6]
    again.close()


@pytest.mark.parametrize("chunk_first", [True, False])
def test_of_slot_and_chunk_the_newer_counts(store: Store, chunk_first: bool) -> None:
    """A restore writes slots with keys of their own beside chunks: whichever was written first."""
    sequence = 5 if chunk_first else 1
    slot = codec.ring_key(CAPACITY, sequence), _value(sequence, b"slot")
    if chunk_first:
        _write(store, range(4))
        _write(store, range(0), slot)
    else:
        _write(store, range(0), slot)
        _write(store, range(5, 6))

    assert _held(store).get(5) == (b"\x00slot" if chunk_first else b"\x005")
    assert 1 not in _held(store)


def test_a_version_that_knows_no_chunks_rebuilds(store: Store) -> None:
    """A version without chunks does not find the position and rebuilds the store."""
    _write(store, range(0))
    before = json.loads(store._many([STATE_KEY])[0] or b"")
    _write(store, range(3))
    with_chunks = json.loads(store._many([STATE_KEY])[0] or b"")

    assert ("position" in before, "position" in with_chunks) == (True, False)
    assert before["position"] == with_chunks["chunked_position"] == 10
    state = store.state()
    assert state is not None
    assert state.position == 10


def test_an_interrupted_building_is_told(store: Store) -> None:
    """Chunks without a state, which a write of both leaves only where something was lost, are trusted as little as slots without one."""
    assert not store.unfinished
    key = chunks.key_of(CAPACITY, 0)
    store.write(
        store.epoch, None, lambda writes: writes.put_chunk(key, Chunk.from_values(CAPACITY, [_value(0)]))
    )

    assert store.unfinished
    assert store.state() is None


@pytest.mark.parametrize("damage", [b"\x00", b"\x00\x05abc", b"\x00\x1e" + b"\x09" * 30, _value(3)])
def test_damaged_chunk(store: Store, damage: bytes) -> None:
    """A damaged chunk is distinguished from a sound one. The store is rebuilt, and no damaged byte counts as an ID."""
    damaged = Chunk(CAPACITY, Chunk.from_values(CAPACITY, [_value(0)]).encoded + damage)
    _write(store, range(0))
    store.write(
        store.epoch, store.state(), lambda writes: writes.put_chunk(chunks.key_of(CAPACITY, 0), damaged)
    )

    with pytest.raises(FormatError, match="chunk of ring records"):
        list(store.slots())
