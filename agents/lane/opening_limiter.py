"""Limit of lanes that open at the same time: a thousand openings at once would exceed every time-out.

A slow opening gives its place back after :data:`HELD_MAX_S`. Its next attempt waits for one of a few separate places, so it
does not delay other lanes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable
from typing import Final

OPENING_MAX: Final = 16
SLOW_MAX: Final = 16
"""Places for lanes whose last opening took too long."""
HELD_MAX_S: Final = 2.0
"""Maximum time to hold a place, in seconds: many times the duration of an opening that waits for no other party."""


class OpeningLimiter:
    """Limiter of one worker."""

    def __init__(
        self, most: int = OPENING_MAX, slow_most: int = SLOW_MAX, held_max_s: float = HELD_MAX_S
    ) -> None:
        self._free = asyncio.Semaphore(most)
        self._free_for_slow = asyncio.Semaphore(slow_most)
        self._held_max_s = held_max_s
        self._slow: set[Hashable] = set()
        """Lanes whose last opening took too long."""

    @contextlib.asynccontextmanager
    async def place(self, who: Hashable) -> AsyncIterator[None]:
        """Wait for a place in order of arrival. Hold it until the block ends, or for the maximum time."""
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
