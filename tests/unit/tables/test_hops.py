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


def _arrivals(*steps: tuple[int, int], route: Route = WAY) -> list[Arrival]:
    """Offset, and what was confirmed."""
    return [Arrival(route, *step) for step in steps]


def _known(memory: HopMemory, *steps: tuple[int, int], route: Route = WAY) -> list[bool]:
    judged = memory.check(_arrivals(*steps, route=route))
    memory.apply(judged)
    return list(judged.known)


def _held(memory: HopMemory, route: Route = WAY) -> tuple[int, list[int]]:
    held = memory.routes[route]
    return held.floor, list(held.above)


def test_floor_of_each_way() -> None:
    """Confirmations of one route do not count for another, where hops may still be on their detour."""
    memory = HopMemory(100)
    _known(memory, (20, 20))

    assert _known(memory, (6, 0), route=OTHER_WAY) == [False]
    assert _held(memory, OTHER_WAY) == (0, [6])


def test_check_changes_nothing() -> None:
    memory = HopMemory(100)
    _known(memory, (1, 0), (2, 0))
    judged = memory.check(_arrivals((3, 2), (4, 2)))

    assert _held(memory) == (0, [1, 2])
    assert list(memory.check(_arrivals((3, 0))).known) == [False]
    memory.apply(judged)
    assert _held(memory) == (2, [2, 3, 4])


def test_more_than_a_record_holds() -> None:
    """A changelog record holds the hops at any capacity, because the lowest unconfirmed hops are forgotten."""
    memory = HopMemory(10**9)
    _known(memory, *((index << 32, 0) for index in range(OFFSETS_MAX + 10)))
    ((key, value),) = changelog_records(Judged((), memory.routes))

    assert _held(memory)[1][0] == 10 << 32
    assert len(value) < 2**20
    assert _held(HopMemory.restored(10**9, [(key, value)])) == _held(memory)


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
    with pytest.raises(FormatError, match=fault):
        HopMemory.restored(100, [(key, value)])


def test_nothing_of_a_run_without_end_is_unrolled() -> None:
    """A damaged record may claim any number of offsets, and only as many as fit are read."""
    held = Held.restored(0, [(0, 2**62)], 3)

    assert list(held.above) == [2**62 - 3, 2**62 - 2, 2**62 - 1]
