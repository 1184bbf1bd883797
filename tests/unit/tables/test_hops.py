"""The hop memory: known hops of each route, and their changelog records."""

import pytest

from ringfence_kafka.protocol.hop import Source
from tables import codec
from tables.codec import FormatError, Route
from tables.hops import OFFSETS_MAX, Arrival, Held, HopMemory, Judged, changelog_records

TOPIC_ID = "AbC_-67890123456789012"
SOURCE = Source("to-paris", TOPIC_ID, 3)
WAY = Route(SOURCE, 0)
OTHER_WAY = Route(SOURCE, 1)


def _arrivals(*steps: tuple[int, int], way: Route = WAY) -> list[Arrival]:
    """Offset, and what was confirmed."""
    return [Arrival(way, *step) for step in steps]


def _known(memory: HopMemory, *steps: tuple[int, int], way: Route = WAY) -> list[bool]:
    """In one batch, which is then committed."""
    judged = memory.check(_arrivals(*steps, way=way))
    memory.apply(judged)
    return list(judged.known)


def _held(memory: HopMemory, way: Route = WAY) -> tuple[int, list[int]]:
    held = memory.ways[way]
    return held.floor, list(held.above)


def _again(memory: HopMemory, capacity: int = 100) -> HopMemory:
    """Written down and read again."""
    return HopMemory.restored(capacity, changelog_records(Judged((), memory.ways)))


def test_comes_twice() -> None:
    """A hop that arrived is known, in whatever order hops arrive."""
    memory = HopMemory(100)

    assert _known(memory, (0, 0), (1, 0), (5, 0)) == [False] * 3
    assert _known(memory, (5, 0), (0, 0), (3, 0), (1, 0)) == [True, True, False, True]
    assert _held(memory) == (0, [0, 1, 3, 5])


def test_twice_in_one_batch() -> None:
    """A batch is judged with what its earlier records brought."""
    assert _known(HopMemory(100), (7, 0), (8, 0), (7, 0), (9, 9), (8, 0)) == [False, False, True, False, True]


def test_below_the_floor() -> None:
    """A confirmed hop is known even if it never arrived here, since it arrived elsewhere and has been forgotten."""
    memory = HopMemory(100)
    _known(memory, (0, 0), (6, 0), (20, 20))

    assert _held(memory) == (20, [20])
    assert _known(memory, (6, 0), (19, 0), (20, 0), (21, 0)) == [True, True, True, False]


def test_floor_never_falls() -> None:
    """A late batch that knows of less does not take back what was confirmed."""
    memory = HopMemory(100)
    _known(memory, (20, 20), (21, 3))

    assert _held(memory) == (20, [20, 21])


def test_floor_of_each_way() -> None:
    """Confirmations of one route do not count for another, where hops may still be on their detour."""
    memory = HopMemory(100)
    _known(memory, (20, 20))

    assert _known(memory, (6, 0), way=OTHER_WAY) == [False]
    assert _held(memory, OTHER_WAY) == (0, [6])


def test_known_by_any_way() -> None:
    """A remembered hop is known even if a bridge with another placement of keys brings it by another route."""
    memory = HopMemory(100)
    _known(memory, (6, 0))

    assert _known(memory, (6, 0), (7, 0), way=OTHER_WAY) == [True, False]
    assert _known(memory, (7, 0)) == [True]


@pytest.mark.parametrize(
    "other",
    [SOURCE._replace(bridge="to-pari"), SOURCE._replace(topic_id="x" * 22), SOURCE._replace(partition=4)],
)
def test_sources_apart(other: Source) -> None:
    """Hops of another bridge, of another topic of the same name, or of another partition are unknown."""
    memory = HopMemory(100)
    _known(memory, (6, 5))

    assert _known(memory, (6, 0), (2, 0), way=Route(other, 0)) == [False, False]


def test_check_changes_nothing() -> None:
    """A check changes nothing; only the commit does."""
    memory = HopMemory(100)
    _known(memory, (1, 0), (2, 0))
    judged = memory.check(_arrivals((3, 2), (4, 2)))

    assert _held(memory) == (0, [1, 2])
    assert list(memory.check(_arrivals((3, 0))).known) == [False]
    memory.apply(judged)
    assert _held(memory) == (2, [2, 3, 4])


def test_lowest_are_forgotten() -> None:
    """A route keeps the highest offsets above the floor, as many as the capacity; other routes keep theirs."""
    memory = HopMemory(3)
    _known(memory, (50, 0), way=OTHER_WAY)
    _known(memory, *((index, 0) for index in range(5)))

    assert _held(memory) == (0, [2, 3, 4])
    assert _known(memory, (1, 0), (2, 0), (0, 0)) == [False, True, False]
    assert _held(memory) == (0, [2, 3, 4])
    assert _known(memory, (50, 0), way=OTHER_WAY) == [True]


def test_more_than_a_record_holds() -> None:
    """A changelog record holds the hops at any capacity, because the lowest unconfirmed hops are forgotten."""
    memory = HopMemory(10**9)
    _known(memory, *((index << 32, 0) for index in range(OFFSETS_MAX + 10)))
    ((_, value),) = changelog_records(Judged((), memory.ways))

    assert _held(memory)[1][0] == 10 << 32
    assert len(value) < 2**20
    assert _held(_again(memory, 10**9)) == _held(memory)


def test_off() -> None:
    """A memory of size 0 passes everything and notes nothing."""
    memory = HopMemory(0)

    assert _known(memory, (1, 1), (1, 1), (0, 0)) == [False] * 3
    assert memory.ways == {}


def test_read_again() -> None:
    """A restored memory equals the written one; with less room it keeps the highest hops."""
    memory = HopMemory(100)
    _known(memory, (20, 20), (21, 20), (25, 20), (30, 20))
    _known(memory, (7, 0), way=OTHER_WAY)

    assert _held(_again(memory)) == (20, [20, 21, 25, 30])
    assert _held(_again(memory), OTHER_WAY) == (0, [7])
    assert _held(_again(memory, 2)) == (20, [25, 30])
    assert _known(_again(memory), (21, 0), (22, 0), (19, 0)) == [True, False, True]


def test_bytes() -> None:
    """The bytes are fixed, because other programs may read them."""
    key, value = codec.hops_key(WAY._replace(arrived=258)), codec.hops_value(20, [20, 21, 24])

    assert key == b"\x03\x00\x00\x01\x02to-paris/AbC_-67890123456789012/3"
    assert value.hex() == "01" + "0000000000000014" + "02" + "13"
    assert codec.decode_hops(key, value) == (WAY._replace(arrived=258), 20, [(20, 22), (24, 25)])


def test_size_of_ten_thousand() -> None:
    """The record of a route stays below 1.3 KB with 10,000 offsets in flight, every other one here."""
    memory = HopMemory(20_000)
    _known(memory, *((index, 0) for index in range(0, 10_000, 2)))
    ((_, value),) = changelog_records(Judged((), memory.ways))

    assert len(value) < 1_300


KEY = codec.hops_key(WAY)
VALUE = codec.hops_value(20, [20, 21, 24])


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        (KEY, b"\x02" + VALUE[1:], "hops record of format 2; this version reads format 1"),
        (KEY, VALUE[:9], "is damaged: 9 bytes"),
        (KEY, VALUE[:9] + b"\x07", "is damaged: runs of kind 07"),
        (KEY, b"\x01" + b"\xff" * 8 + b"\x01", "is damaged: .* is no offset"),
        (KEY[:4], VALUE, "is damaged"),
        (KEY[:-1], VALUE, "names no source of a bridge"),
    ],
)
def test_damaged(key: bytes, value: bytes, fault: str) -> None:
    """A record that this version cannot read raises an error that names the problem."""
    with pytest.raises(FormatError, match=fault):
        HopMemory.restored(100, [(key, value)])


def test_nothing_of_a_run_without_end_is_unrolled() -> None:
    """A damaged record may claim any number of offsets, and only as many as fit are read."""
    held = Held.restored(0, [(0, 2**62)], 3)

    assert list(held.above) == [2**62 - 3, 2**62 - 2, 2**62 - 1]


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped first", "not stopped"])
def test_restored_from_an_old_copy(stopped: bool) -> None:
    """A bridge that is set back to the old floor sends the lost hops again.

    They are lost for good once it has sent one later record before.
    """
    memory = HopMemory(100)
    _known(memory, *((index, min(index, 5)) for index in range(10)))
    old = _again(memory)
    floor = old.ways[WAY].floor
    if not stopped:
        assert _known(old, (50, 50)) == [False]
    known = _known(old, *((index, floor) for index in range(floor, 51)))

    assert floor == 5
    assert known == [index < 10 or not stopped for index in range(5, 51)]
