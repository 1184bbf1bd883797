"""Virtual time for the delays between attempts."""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

from ringfence_client.dispatch.retry_clock import RetryClock

START_MS: Final = 1_700_000_000_000


class VirtualTimer:
    """A scheduled call in virtual time."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the call."""
        self.callback = None


class VirtualTime(RetryClock):
    """Clock that passes on request."""

    def __init__(self) -> None:
        self.now_s = 0.0
        """Time since the start, in seconds."""
        self.delays: list[float] = []
        """All requested delays, in seconds."""
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._numbers = count()

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return START_MS + round(self.now_s * 1000)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> VirtualTimer:
        """Schedule a call after these seconds."""
        timer = VirtualTimer(callback)
        self.delays.append(seconds)
        heapq.heappush(self._timers, (self.now_s + seconds, next(self._numbers), timer))
        return timer

    @property
    def next_at(self) -> float | None:
        """Time of the next call, in seconds; None = no call."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def pass_until(self, moment: float) -> None:
        """Let time pass until a moment, and run the due calls."""
        self.now_s = max(self.now_s, moment)
        while (due := self.next_at) is not None and due <= self.now_s:
            _, _, timer = heapq.heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()

    def forget(self) -> None:
        """Drop all scheduled calls."""
        self._timers.clear()
