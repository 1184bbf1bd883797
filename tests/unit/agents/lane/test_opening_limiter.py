"""How many lanes open at a time."""

import asyncio
import contextlib

import pytest

from agents.lane.opening_limiter import OpeningLimiter

LIMIT_S = 60.0
LONG_S = 60.0
SHORT_S = 0.02


class Opening:
    """Somebody who opens for as long as the test wants."""

    def __init__(self, places: OpeningLimiter, name: str) -> None:
        self.inside = asyncio.Event()
        self._end = asyncio.Event()
        self.task = asyncio.create_task(self._run(places, name))

    async def _run(self, places: OpeningLimiter, name: str) -> None:
        async with places.place(name):
            self.inside.set()
            await self._end.wait()

    async def begun(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self.inside.wait()

    async def end(self) -> None:
        self._end.set()
        async with asyncio.timeout(LIMIT_S):
            await self.task


async def _turns() -> None:
    """Let every task that can run proceed."""
    for _ in range(20):
        await asyncio.sleep(0)


def _inside(*openings: Opening) -> list[bool]:
    return [opening.inside.is_set() for opening in openings]


async def test_so_many_at_a_time() -> None:
    places = OpeningLimiter(2, 1, LONG_S)
    openings = [Opening(places, str(number)) for number in range(4)]
    await _turns()
    assert _inside(*openings) == [True, True, False, False]
    await openings[1].end()
    await openings[2].begun()
    assert _inside(*openings) == [True, True, True, False]
    await openings[0].end()
    await openings[3].begun()
    await asyncio.gather(*(opening.end() for opening in openings[2:]))


async def test_one_that_is_stuck_holds_up_nobody() -> None:
    """A stuck opening makes room for the next one after its time. It continues, and gives its place back only once."""
    places = OpeningLimiter(1, 1, SHORT_S)
    stuck = Opening(places, "stuck")
    await stuck.begun()
    places._held_max_s = LONG_S
    second = Opening(places, "second")
    await second.begun()
    third = Opening(places, "third")
    await _turns()
    assert not stuck.task.done()
    await stuck.end()
    await _turns()
    assert not third.inside.is_set()
    await second.end()
    await third.begun()
    await third.end()


@pytest.mark.parametrize("waiting", [False, True])
async def test_places_come_back(waiting: bool) -> None:
    """An opening that is cancelled, inside or while it waits, leaves its place to the next one."""
    places = OpeningLimiter(1, 1, LONG_S)
    one, two = Opening(places, "one"), Opening(places, "two")
    await one.begun()
    given_up, other = (two, one) if waiting else (one, two)
    given_up.task.cancel()
    await asyncio.wait([given_up.task])
    await other.begun()
    await other.end()

    assert places._free._value == 1


async def test_who_was_stuck_waits_elsewhere() -> None:
    """Openings that are stuck repeatedly wait elsewhere, so others find their places free."""
    places = OpeningLimiter(2, 1, SHORT_S)
    stuck = [Opening(places, f"stuck-{number}") for number in range(2)]
    await asyncio.gather(*(opening.begun() for opening in stuck))
    places._held_max_s = LONG_S
    well = [Opening(places, f"well-{number}") for number in range(2)]
    await asyncio.gather(*(opening.begun() for opening in well))  # until the places of those are given back
    await asyncio.gather(*(opening.end() for opening in (*stuck, *well)))
    again = [Opening(places, f"stuck-{number}") for number in range(2)]
    others = [Opening(places, f"other-{number}") for number in range(2)]
    await asyncio.gather(*(other.begun() for other in others))
    await _turns()
    assert _inside(*again, *others) == [True, False, True, True]
    await again[0].end()
    await again[1].begun()
    await asyncio.gather(again[1].end(), *(other.end() for other in others))


async def test_no_timer_is_left() -> None:
    """An opening that ended in time does not give its place back a second time."""
    places = OpeningLimiter(1, 1, SHORT_S)
    with contextlib.suppress(OSError):
        async with places.place("one"):
            raise OSError
    async with places.place("two"):
        pass
    await asyncio.sleep(SHORT_S * 3)

    assert places._free._value == 1
    assert places._slow == set()
