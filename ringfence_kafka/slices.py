"""Long computations beside others on one event loop: in slices, and of all of them together one slice a turn of the loop."""

import asyncio
import time
from collections.abc import Generator
from typing import Any, Final, TypeVar

SLICE_S: Final = 0.005

T = TypeVar("T")
Steps = Generator[Any, None, T]
"""A computation that yields where it may be interrupted, every millisecond or sooner, and returns its result."""


class Slices:
    """Of one event loop. Who waits for something else meanwhile keeps nobody from their slices."""

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self._slice_s = slice_s
        self._turn = asyncio.Lock()

    async def run(self, steps: Steps[T]) -> T:
        """The result; whoever is cancelled gives up between two slices, and what the computation holds is let go."""
        try:
            while True:
                async with self._turn:
                    until = time.perf_counter() + self._slice_s
                    try:
                        next(steps)
                        while time.perf_counter() < until:
                            next(steps)
                    except StopIteration as end:
                        return end.value  # type: ignore[no-any-return]
                    await asyncio.sleep(
                        0
                    )  # with the turn: the others' slices are for later turns of the loop
        finally:
            steps.close()


def at_once(steps: Steps[T]) -> T:
    """The result, where nobody is held up."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
