"""Runs long computations on an event loop in slices. All computations together get one slice per turn of the loop."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

SLICE_MIN_S: Final = 0.005
SLICE_MAX_S: Final = 0.025
"""Maximum time that other tasks wait for the end of a slice, in seconds."""
FREED_AT_ONCE: Final = 2_000

T = TypeVar("T")
Steps = Generator[Any, None, T]
"""A computation that yields at least every millisecond, where it may be interrupted, and returns its result."""


def emptying(*collections: dict[Any, Any] | deque[Any]) -> Steps[None]:
    """Release many objects step by step: Python would free all at once and block the event loop."""
    for collection in collections:
        remove: Callable[[], object] = (
            collection.popitem if isinstance(collection, dict) else collection.popleft
        )
        while collection:
            for _ in range(min(len(collection), FREED_AT_ONCE)):
                remove()
            yield


class TimeSlices:
    """Time slices of one event loop for long computations. A task that waits for another event does not block other tasks' slices.

    A slice is as long as the other work since the last slice, within limits, so that slices use about half of a busy loop. For background
    work a pause of the same length follows each slice, which leaves CPU time to other processes.
    """

    def __init__(self, least_s: float = SLICE_MIN_S, most_s: float = SLICE_MAX_S) -> None:
        self._least_s = least_s
        self._most_s = most_s
        self._turn = asyncio.Lock()
        self._ended = time.perf_counter()
        self._rests_until = self._ended

    def rest(self, for_s: float) -> None:
        """Use at most half of a core for ``for_s`` seconds; 0 = end this limit."""
        self._rests_until = time.perf_counter() + for_s

    @property
    def rests(self) -> bool:
        """Whether it uses at most half of a core."""
        return time.perf_counter() < self._rests_until

    async def run(self, steps: Steps[T]) -> T:
        """Run a computation in slices and return its result. A cancelled call stops between slices and closes the computation."""
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
                    # The lock is kept, so that the slices of other computations run in later turns of the loop.
                    await asyncio.sleep(self._ended - began if self.rests else 0)
        finally:
            steps.close()
