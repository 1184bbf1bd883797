"""Long computations beside others on one event loop: in slices, and of all of them together one slice a turn of the loop."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

SLICE_MIN_S: Final = 0.005
SLICE_MAX_S: Final = 0.025
"""Nobody else on the loop waits longer for a slice to end."""
FREED_AT_ONCE: Final = 2_000

T = TypeVar("T")
Steps = Generator[Any, None, T]
"""A computation that yields where it may be interrupted, every millisecond or sooner, and returns its result."""


def emptying(*collections: dict[Any, Any] | deque[Any]) -> Steps[None]:
    """Let go of many objects: Python would free them all at once, and nothing else would run meanwhile."""
    for collection in collections:
        remove: Callable[[], object] = (
            collection.popitem if isinstance(collection, dict) else collection.popleft
        )
        while collection:
            for _ in range(min(len(collection), FREED_AT_ONCE)):
                remove()
            yield


class TimeSlices:
    """Time slices of one event loop for long computations. A task that waits for something else blocks no other task's slices.

    A slice is as long as the other work since the last slice, within limits, so that slices take about half of a busy loop. If nobody waits
    for the result, a rest as long as itself follows each slice: processes that share the cores work on.
    """

    def __init__(self, least_s: float = SLICE_MIN_S, most_s: float = SLICE_MAX_S) -> None:
        self._least_s = least_s
        self._most_s = most_s
        self._turn = asyncio.Lock()
        self._ended = time.perf_counter()
        self._rests_until = self._ended

    def rest(self, for_s: float) -> None:
        """Take half of a core at most, for so long; 0 = no longer."""
        self._rests_until = time.perf_counter() + for_s

    @property
    def rests(self) -> bool:
        """Whether it takes half of a core at most."""
        return time.perf_counter() < self._rests_until

    async def run(self, steps: Steps[T]) -> T:
        """Run a computation in slices and return its result. A cancelled call stops between slices, and releases it."""
        try:
            while True:
                async with self._turn:
                    began = time.perf_counter()
                    until = began + min(self._most_s, max(self._least_s, began - self._ended))
                    try:
                        next(steps)
                        while time.perf_counter() < until:
                            next(steps)
                    except StopIteration as end:
                        return end.value  # type: ignore[no-any-return]
                    finally:
                        self._ended = time.perf_counter()
                    # With the turn: the others' slices are for later turns of the loop.
                    await asyncio.sleep(self._ended - began if self.rests else 0)
        finally:
            steps.close()
