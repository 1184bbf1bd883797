"""The time that retries go by."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Do not call it."""


class RetryClock:
    """The clock of the machine, and the timers of the event loop."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch: another holder of the partition counts on from them."""
        return round(time.time() * 1000)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call something after so many seconds."""
        return asyncio.get_running_loop().call_later(seconds, callback)
