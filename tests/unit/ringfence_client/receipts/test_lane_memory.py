"""An outbox's memory of one lane, the end of a wait for it, and the changelog as :mod:`tables` writes it."""

import asyncio
from typing import NamedTuple

import pytest

from ringfence_client.receipts import lane_memory
from ringfence_client.receipts.lane_memory import (
    Awaited,
    LaneMemory,
    Place,
    Target,
    id_of,
    place_of,
    read_state,
)
from ringfence_kafka.protocol import stored_ids
from tables import codec
from tables.codec import Meta, Origin


class Record(NamedTuple):
    """A record of the changelog."""

    key: bytes
    value: bytes | None


def slot(sequence: int, identity: bytes, offset: int = 0) -> Record:
    value = codec.ring_value(sequence, identity, Origin(0, offset, 1_000))
    return Record(codec.ring_key(100, sequence), value)


def meta(next_offset: int, head: int = 0, capacity: int = 100, topic_id: str = "T") -> Record:
    found = Meta(capacity, head, 0, {"in": next_offset}, {"in": 1}, "i", topic_ids={"in": topic_id})
    return Record(codec.META_KEY, codec.encode_meta(found))


def awaited(memory: LaneMemory, offset: int, identity: bytes = b"a") -> Awaited:
    """Return a message of an ID that is sent to an offset now."""
    message = Awaited(identity, memory.state)
    message.place = Place(0, offset, 1_000)
    return message


@pytest.fixture
def memory() -> LaneMemory:
    return LaneMemory(complete=True)


async def test_its_own_slot_ends_the_wait(memory: LaneMemory) -> None:
    """Another message with the same ID does not."""
    message = awaited(memory, 7)
    waiting = asyncio.create_task(message.wait(memory, "in", 0, 7))
    await asyncio.sleep(0)
    memory.apply_records([slot(0, b"a", 6), slot(1, b"b", 7)], {b"a": [message]}, 100)
    await asyncio.sleep(0)
    assert not waiting.done()
    memory.apply_records([slot(2, b"a", 7)], {b"a": [message]}, 100)
    await waiting

    assert message.accepted


async def test_the_lane_is_past_it(memory: LaneMemory) -> None:
    message = awaited(memory, 7)
    waiting = asyncio.create_task(message.wait(memory, "in", 0, 7))
    await asyncio.sleep(0)
    memory.apply_records([slot(0, b"a", 6), meta(7)], {b"a": [message]}, 100)
    await asyncio.sleep(0)
    assert not waiting.done()
    memory.apply_records([meta(8)], {}, 100)
    await waiting
    await message.wait(memory, "in", 0, 7)  # at once

    assert not message.accepted


async def test_offsets_of_a_deleted_topic(memory: LaneMemory) -> None:
    """A lane that was past an offset before it was written speaks of another topic."""
    memory.apply_records([meta(8)], {}, 100)
    message = awaited(memory, 0)
    waiting = asyncio.create_task(message.wait(memory, "in", 0, 0))
    await asyncio.sleep(0)
    memory.apply_records([meta(9)], {}, 100)
    await asyncio.sleep(0)
    assert not waiting.done()
    memory.apply_records([meta(1, topic_id="U")], {}, 100)
    await waiting


async def test_failure(memory: LaneMemory) -> None:
    waiting = memory.future_of(Target("in", 0, 7, None))
    memory.fail(RuntimeError("closed"))

    with pytest.raises(RuntimeError, match="closed"):
        await waiting


def test_the_latest_ids_are_kept(memory: LaneMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the ring has, and some more; an ID that was accepted again counts by its last acceptance."""
    monkeypatch.setattr(lane_memory, "SPARE_IDS", 1)
    memory.apply_records([meta(0, capacity=2)], {}, 100)
    memory.apply_records([slot(0, b"a", 0), slot(1, b"b", 1), slot(2, b"a", 2), slot(3, b"c", 3)], {}, 100)
    assert sorted(memory.known) == [b"a", b"b", b"c"]
    memory.apply_records([slot(4, b"d", 4)], {}, 100)

    numbers = {key: codec.sequence_of(value) for key, value in memory.known.items()}
    assert numbers == {b"a": 2, b"c": 3, b"d": 4}
    assert memory.complete


def test_a_ring_larger_than_the_memory(memory: LaneMemory) -> None:
    """An unknown ID may be in the ring then."""
    memory.apply_records([meta(0, capacity=1_000), *(slot(n, b"%d" % n) for n in range(5))], {}, 3)

    assert sorted(memory.known) == [b"2", b"3", b"4"]
    assert not memory.complete


def test_what_came_before(memory: LaneMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older IDs are forgotten first, and change nothing of newer ones."""
    monkeypatch.setattr(lane_memory, "SPARE_IDS", 0)
    memory = LaneMemory(complete=False)
    memory.apply_records([slot(5, b"a", 5), meta(0, capacity=3)], {}, 100)
    older = {id_: slot(number, id_).value or b"" for id_, number in ((b"c", 2), (b"b", 1), (b"a", 0))}
    memory.add_older(older, 100)

    assert memory.complete
    assert [codec.sequence_of(value) for value in memory.known.values()] == [1, 2, 5]
    memory.apply_records([slot(6, b"d")], {}, 100)
    assert list(memory.known) == [b"c", b"a", b"d"]


@pytest.mark.parametrize(("head", "covers"), [(10, True), (13, True), (14, False)])
def test_the_ring_went_round(memory: LaneMemory, head: int, covers: bool) -> None:
    """The head was 10 and the capacity is 3: the fourth ID overwrites the slot of the first."""
    memory.apply_records([meta(0, head=10, capacity=3)], {}, 100)
    message = awaited(memory, 0)
    memory.apply_records([meta(1, head=head, capacity=3)], {}, 100)

    assert memory.state is not None
    assert message.covers(memory.state) is covers
    assert not Awaited(b"a", None).covers(memory.state)


@pytest.mark.parametrize("identity", [b"a", b"x" * 256, b"x" * 257], ids=["short", "longest", "digest"])
def test_ring_record(identity: bytes) -> None:
    """Format 2 holds a digest of the value, and an ID may be stored with that of a second value."""
    stored, digest = stored_ids.encode_id(identity), 2**63 + 5
    variant = stored_ids.variant_of(stored, digest)
    for id_, value_digest in ((stored, 0), (variant, digest)):
        value = codec.ring_value(7, id_, Origin(3, 2**40, 1_700_000_000_000), value_digest)

        assert id_of(value) == id_
        assert stored_ids.without_value(id_) == stored
        assert place_of(value) == Place(3, 2**40, 1_700_000_000_000)
        assert lane_memory.sequence_of(value) == 7
        assert lane_memory.digest_of(value) == value_digest
    assert codec.ring_key(20, 7)[:1] == lane_memory.RING_KIND


@pytest.mark.parametrize(("lanes", "key"), [(0, "in"), (2, "in/3")])
def test_meta_record(lanes: int, key: str) -> None:
    """In each format: by topic, and by partition."""
    meta = Meta(20, 8, 0, {key: 5}, {"in": 4}, "i", persistent=False, topic_ids={"in": "T"}, lanes=lanes)
    state = read_state(codec.encode_meta(meta))

    assert codec.META_KEY == lane_memory.META_KEY
    assert (state.capacity, state.head, state.persistent, state.lanes) == (20, 8, False, lanes)
    assert (state.partition_counts, state.topic_ids) == ({"in": 4}, {"in": "T"})
    assert state.next_of("in", 3) == 5
    assert state.next_of("other", 3) == 0


@pytest.mark.parametrize("value", [b"", b"\x01", b"\xff" * 40])
def test_unknown_formats(value: bytes) -> None:
    with pytest.raises(
        lane_memory.ChangelogFormatError, match="install the ringfence-client of the workers' version"
    ):
        id_of(value)
    with pytest.raises(lane_memory.ChangelogFormatError, match="a meta record"):
        read_state(value)


def test_follows() -> None:
    """Offsets count in one partition, and not where the topic was created again."""
    place = Place(0, 5, 1_000)

    assert Place(0, 6, 1_000).follows(place)
    assert not Place(0, 4, 2_000).follows(place)
    assert not Place(1, 6, 2_000).follows(place)
    assert not Place(0, 6, 999).follows(place)
