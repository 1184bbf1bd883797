"""A ring's IDs in the core, beside the index in Python, which is the reference."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import native
from tables.codec import Chunk, Origin, ring_key, ring_value
from tables.ring import Checked, ResidentIndex
from tests.support.records.stored_batches import parsed_changelog

pytestmark = pytest.mark.skipif(native.core is None, reason=native.spoken)
CORE: Any = native.core


def _same(ids: Any, index: ResidentIndex, asked: list[bytes]) -> None:
    assert ids.lookup(asked) == index.lookup(asked)
    assert ids.entries() == list(enumerate(index._order, index._low))
    assert (len(ids), ids.low) == (len(index), index._low)


@given(
    st.integers(0, 30),
    st.integers(0, 2**40),
    st.lists(
        st.lists(st.binary(max_size=2) | st.binary(min_size=250, max_size=460), max_size=40), max_size=20
    ),
    st.data(),
)
def test_same_as_the_index_in_python(
    capacity: int, head: int, batches: list[list[bytes]], data: st.DataObject
) -> None:
    """Core and Python index know the same IDs, whether these come, come again after they were forgotten, or are cleared."""
    timed = capacity > 0 and data.draw(st.booleans())
    ids, index = CORE.Ids(capacity, head, timed), ResidentIndex(head, capacity if timed else 0)
    low = head
    for batch in batches:
        ids_of_batch = list(dict.fromkeys(batch))
        first, head = head, head + len(ids_of_batch)
        low = max(low, head - capacity)
        if data.draw(st.integers(0, 9)) == 0:
            low = data.draw(st.integers(low, head))
        times = [data.draw(st.integers(-3, 9)) for _ in ids_of_batch] if timed else [0] * len(ids_of_batch)
        ids.note(first, ids_of_batch, bytes(8 * len(ids_of_batch)), low, times)
        index.add(Checked([], [], first, ids_of_batch, times), low)
        _same(ids, index, [data for some in batches for data in some])
        if timed:
            known = {id_: sequence for id_, sequence in index.known.items() if sequence >= head - capacity}
            assert {id_: ids.time(id_) for id_ in known} == {
                id_: index.time(id_, number) for id_, number in known.items()
            }
            gone, until = sorted(data.draw(st.integers(low, head)) for _ in range(2))
            before = data.draw(st.integers(-3, 9))
            assert ids.leaving(low, gone, until, before) == index.leaving(low, gone, until, before)


@pytest.mark.parametrize("capacity", [20_000, 100_000])
def test_many(capacity: int) -> None:
    """Shelves and blocks come and go while a ring turns more than twice."""
    rng = random.Random(7)
    ids, index = CORE.Ids(capacity, 0), ResidentIndex()
    head = 0
    sizes = []
    while head < capacity * 5 // 2:
        low = index._low
        new: dict[bytes, None] = {}
        for _ in range(3_000):
            each = b"%036d" % rng.randrange(4 * capacity)
            if index.lookup([each])[0] is None:
                new[each] = None
        first, head = head, head + len(new)
        low = max(low, head - capacity)
        ids.note(first, list(new), bytes(8 * len(new)), low)
        index.add(Checked([], [], first, list(new), [0] * len(new)), low)
        sizes.append(ids.size())
    _same(ids, index, [b"%036d" % index for index in range(4 * capacity)])
    # Some 44 bytes of an entry, some 12 of the table.
    assert ids.size() < 75 * capacity
    assert sizes[-1] <= max(sizes[len(sizes) // 2 :]) < sizes[-1] * 1.1


def test_what_was_let_go_of_says_so() -> None:
    """Released IDs raise an error when they are asked, and never report an ID as unknown."""
    ids = CORE.Ids(100_000, 0)
    ids.note(0, [b"%d" % index for index in range(100_000)], bytes(800_000), 0)
    rounds = 0
    while ids.let_go(1):
        rounds += 1
    assert rounds > 5
    for ask in (lambda: ids.lookup([b"1"]), lambda: ids.note(100_000, [b"x"], bytes(8), 0), ids.entries):
        with pytest.raises(ValueError, match="let go of"):
            ask()
    assert len(ids) == 0


def _values(first: int, ids: list[bytes]) -> list[bytes]:
    return [ring_value(sequence, id_, Origin(0, sequence, 7)) for sequence, id_ in enumerate(ids, first)]


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=60), st.integers(1, 40), st.integers(0, 2**40))
def test_gathered_from_a_changelog(texts: list[bytes], capacity: int, first: int) -> None:
    """The index gathered from ring records equals the index that notes them one by one, and the chunk holds their values."""
    values = _values(first, texts)
    keys = [ring_key(capacity, first + number) for number in range(len(texts))]
    records = parsed_changelog(list(zip(keys, values, strict=True)))
    ids, index = CORE.Ids(capacity, first), ResidentIndex(first)
    end, count, named, chunk = ids.gather(records, 0, 10**6, -1)
    index.add(Checked([], [], first, texts, [0] * len(texts)), first + len(texts) - capacity)
    assert (end, count, named) == (len(texts), len(texts), capacity)
    assert chunk == Chunk.from_values(capacity, values).encoded
    _same(ids, index, texts)

    again = CORE.Ids(capacity, first)
    half = len(values) // 2
    assert again.load(Chunk.from_values(capacity, values[: half + 1]).encoded)
    assert again.load(
        Chunk.from_values(capacity, values[half:]).encoded
    )  # one from_values them for the second time
    head = first + len(texts)
    assert again.settle(max(first, head - capacity), head)
    _same(again, index, texts)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00", b"{}"),
        (ring_key(9, 3), None),
        (ring_key(9, 4), ring_value(3, b"x", Origin(0, 0, 0))),  # of another slot
        (ring_key(9, 5), ring_value(5, b"x", Origin(0, 0, 0))),  # one is missing before it
        (ring_key(9, 2), ring_value(2, b"x", Origin(0, 0, 0))),  # again
        (ring_key(8, 3), ring_value(3, b"x", Origin(0, 0, 0))),  # of another capacity
        (ring_key(9, 3), b"\x03" + ring_value(3, b"x", Origin(0, 0, 0))[1:]),  # of another format
        (ring_key(9, 3), ring_value(3, b"", Origin(0, 0, 0))[:-1]),  # cut off
        (b"\x01\0\0\0\0\0\0\0\0", ring_value(3, b"x", Origin(0, 0, 0))),  # no capacity
    ],
)
def test_gathering_ends_before_what_is_not_usual(key: bytes, value: bytes | None) -> None:
    """Gathering stops at a record that is not a ring record, or not the next one, and leaves it to Python."""
    usual = [(ring_key(9, index), ring_value(index, b"%d" % index, Origin(0, 0, 0))) for index in range(3)]
    ids = CORE.Ids(9, 0)
    end, count, capacity, _ = ids.gather(parsed_changelog([*usual, (key, value)]), 0, 100, -1)
    assert (end, count, capacity, ids.last) == (3, 3, 9, 2)


def test_what_is_there_already_is_passed_over() -> None:
    """Records that a store holds behind its position come again and are passed over."""
    records = parsed_changelog(
        [(ring_key(9, index), ring_value(index, b"%d" % index, Origin(0, 0, 0))) for index in range(6)]
    )
    ids = CORE.Ids(9, 0)
    assert ids.load(Chunk.from_values(9, _values(0, [b"0", b"1", b"2"])).encoded)
    assert ids.gather(records, 0, 2, ids.last)[:3] == (2, 0, 0)
    rest = [ring_value(index, b"%d" % index, Origin(0, 0, 0)) for index in range(3, 6)]
    assert ids.gather(records, 2, 100, ids.last) == (6, 3, 9, Chunk.from_values(9, rest).encoded)
    assert ids.settle(0, 6)


@pytest.mark.parametrize(
    ("sequences", "low", "head", "whole"),
    [
        (range(3, 9), 3, 9, True),
        (range(3, 9), 2, 9, False),
        (range(3, 9), 3, 8, False),
        (range(3, 9), 3, 10, False),
        ([3, 4, 6, 7, 8], 3, 9, False),
        ([3, 4, 6, 7, 8], 6, 9, True),
        ([], 5, 5, True),
        ([], 4, 5, False),
    ],
)
def test_whole(sequences: range | list[int], low: int, head: int, whole: bool) -> None:
    ids = CORE.Ids(20, 0)
    for sequence in sequences:
        ids.note(sequence, [b"%d" % sequence], bytes(8), 0)
    assert ids.settle(low, head) is whole


def test_a_damaged_chunk_is_told() -> None:
    chunk = Chunk.from_values(9, _values(0, [b"a", b"b"])).encoded
    for cut in range(1, len(chunk)):
        if cut != len(Chunk.from_values(9, _values(0, [b"a"])).encoded):
            assert not CORE.Ids(9, 0).load(chunk[:cut])
