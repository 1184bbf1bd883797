"""The clock that leases are judged by: it never goes back, and goes on while the machine sleeps."""

import time


def now() -> float:
    """Return seconds since some moment in the past, comparable on this machine only.

    ``CLOCK_MONOTONIC``, the clock of Python and asyncio, is paused while Linux sleeps (clock_gettime(2)). By that clock, a waking process
    would count no time since its last record, and begin messages under a lease that others took hours ago.
    """
    boot_time: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)
