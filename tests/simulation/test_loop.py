"""The virtual loop: a crash."""

import asyncio
import random
from types import SimpleNamespace

from tests.simulator.loop import Loops


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

    loops = Loops(random.Random(1))
    loop = loops.new(SimpleNamespace())
    loop.create_task(work())
    loops.run(lambda: False, 10**9, 0.5)
    loop.crash()
    loops.run(lambda: False, 10**9, 5.0)
    loops.bury()

    assert told == []
