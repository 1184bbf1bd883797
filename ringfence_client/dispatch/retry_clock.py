"""Clock of retries."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


class RetryClock:
    """The clock of the machine, and the timers of the event loop."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch. The next holder of the partition continues with them."""
        return round(time.time() * 1000)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Schedule a call after a number of seconds."""
        return asyncio.get_running_loop().call_later(seconds, callback)
