"""Limits how many lanes open at a time: a thousand at once would exceed every time-out.

A stuck opening gives its place back after a moment. The next time it waits for one of a few other places, so it holds up no others.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable
from typing import Final

OPENING_MAX: Final = 16
SLOW_MAX: Final = 16
"""Places for lanes that were not done in time the last time."""
HELD_MAX_S: Final = 2.0
"""For so long a place is held: many times what an opening takes that waits for nobody."""


class OpeningLimiter:
    """Limiter of one worker."""

    def __init__(
        self, most: int = OPENING_MAX, slow_most: int = SLOW_MAX, held_max_s: float = HELD_MAX_S
    ) -> None:
        self._free = asyncio.Semaphore(most)
        self._free_for_slow = asyncio.Semaphore(slow_most)
        self._held_max_s = held_max_s
        self._slow: set[Hashable] = set()
        """Lanes that were not done in time."""

    @contextlib.asynccontextmanager
    async def place(self, who: Hashable) -> AsyncIterator[None]:
        """Wait for a place, first come, first served. Hold it to the end of the block, or until its time is over."""
        free = self._free_for_slow if who in self._slow else self._free
        await free.acquire()
        held = True

        def give_back() -> None:
            nonlocal held
            held = False
            free.release()

        def overstay() -> None:
            self._slow.add(who)
            give_back()

        timer = asyncio.get_running_loop().call_later(self._held_max_s, overstay)
        try:
            yield
        finally:
            timer.cancel()
            if held:
                self._slow.discard(who)
                give_back()
