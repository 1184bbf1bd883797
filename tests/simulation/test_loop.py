"""The virtual loop: order, time, crashes, pauses; and that a seed gives one run."""

import asyncio
import math
import random
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.simulator.loop import Loops, ProcessLoop
from tests.simulator.patches import simulated


class _Process:
    """Owner of the loop, which is one life of the process."""

    def __init__(self, loops: Loops) -> None:
        self.loops = loops

    def monotonic(self) -> float:
        return self.loops.now

    wall = monotonic


def _loops(seed: int = 1) -> Loops:
    return Loops(random.Random(seed))


def _start(loops: Loops, *works: Coroutine[Any, Any, Any]) -> ProcessLoop:
    loop = loops.new(_Process(loops))
    for work in works:
        loop.create_task(work)
    return loop


def _run(loops: Loops, limit_s: float = math.inf) -> None:
    loops.run(lambda: False, 10**9, limit_s)


def test_time_jumps_to_the_next_timer() -> None:
    """An hour of sleep takes no real time, and the process's clocks advance by an hour."""
    told: list[float] = []

    async def sleep() -> None:
        before = time.monotonic()
        await asyncio.sleep(3600)
        told.append(time.monotonic() - before)

    with simulated():
        loops = _loops()
        _start(loops, sleep())
        _run(loops)

    assert told == [pytest.approx(3600, abs=0.001)]


def test_crash_leaves_no_trace() -> None:
    """A crashed process never runs its cleanup, neither at the crash nor when its world ends."""
    told: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            told.append("worked")
        finally:
            asyncio.create_task(clean_up())  # noqa: RUF006

    async def clean_up() -> None:
        told.append("cleaned up")

    loops = _loops()
    loop = _start(loops, work())
    _run(loops, 0.5)
    loop.crash()
    _run(loops, 5.0)
    loops.bury()

    assert told == []
