import asyncio
import itertools
import time
from collections.abc import Generator

import pytest

from ringfence_kafka.concurrency.cooperative import TimeSlices


def _counting(steps: int, seen: list[str], name: str) -> Generator[None, None, str]:
    try:
        for _ in range(steps):
            seen.append(name)
            yield
    finally:
        seen.append(f"{name} let go")
    return name


async def _others(seen: list[str], busy_s: float) -> None:
    while True:
        time.sleep(busy_s)  # noqa: ASYNC251 - a batch that is decided
        seen.append("-")
        await asyncio.sleep(0)


async def test_one_slice_a_turn_of_all_together() -> None:
    """Other tasks on the loop get their turn between any two slices, however many computations run."""
    seen: list[str] = []
    slices = TimeSlices(0.0, 0.0)

    beside = asyncio.create_task(_others(seen, 0.0))
    both = asyncio.gather(*(slices.run(_counting(3, seen, name)) for name in ("a", "b")))
    results = await asyncio.wait_for(both, 10)
    beside.cancel()

    assert results == ["a", "b"]
    assert sorted(name for name in seen if name in {"a", "b"}) == ["a"] * 3 + ["b"] * 3
    assert not [pair for pair in itertools.pairwise(seen) if set(pair) <= {"a", "b"}]


async def test_busy_loop_is_shared() -> None:
    """A slice becomes as long as other work between two slices, up to its limit, so that busy lanes do not starve an opening."""
    slices = TimeSlices(0.001, 0.02)
    seen: list[str] = []

    def measured() -> Generator[None, None, None]:
        for _ in range(6):
            began = time.perf_counter()
            while time.perf_counter() < began + 0.005:  # five milliseconds of work
                pass
            seen.append("a")
            yield

    beside = asyncio.create_task(_others(seen, 0.03))
    await asyncio.sleep(0)
    await slices.run(measured())
    beside.cancel()

    assert max(len(run) for run in "".join(seen).split("-")) > 1


async def test_cancelled_between_two_slices() -> None:
    """A cancelled or failed computation releases its resources at once, and the next one has its turn."""
    seen: list[str] = []
    slices = TimeSlices()

    def failing() -> Generator[None, None, None]:
        yield
        raise ValueError("no")

    task = asyncio.create_task(slices.run(_counting(10**9, seen, "a")))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ValueError, match="no"):
        await slices.run(failing())

    assert seen[-1] == "a let go"
    assert await slices.run(_counting(2, [], "next")) == "next"
