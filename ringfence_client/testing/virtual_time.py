"""Time that passes at once: the delays between attempts."""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

from ringfence_client.dispatch.retry_clock import RetryClock

START_MS: Final = 1_700_000_000_000


class VirtualTimer:
    """A call at a moment of virtual time, unless it is cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Do not call it."""
        self.callback = None


class VirtualTime(RetryClock):
    """Passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        """Seconds that have passed."""
        self.delays: list[float] = []
        """Everything that was waited for, in seconds."""
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._numbers = count()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return START_MS + round(self.now_s * 1000)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> VirtualTimer:
        """Call something when so many seconds have passed."""
        timer = VirtualTimer(callback)
        self.delays.append(seconds)
        heapq.heappush(self._timers, (self.now_s + seconds, next(self._numbers), timer))
        return timer

    @property
    def next_at(self) -> float | None:
        """When the next call is due, in seconds; None = there is none."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def pass_until(self, moment: float) -> None:
        """Let time pass until this moment, and call what is due then."""
        self.now_s = max(self.now_s, moment)
        while (due := self.next_at) is not None and due <= self.now_s:
            _, _, timer = heapq.heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()

    def forget(self) -> None:
        """Call nothing of what was to be called."""
        self._timers.clear()
