"""The clock that leases are judged by: it never goes back, and goes on while the machine sleeps."""

import time


def now() -> float:
    """Seconds since some moment in the past; of this machine alone.

    ``CLOCK_MONOTONIC``, which Python and asyncio go by, stands still while Linux sleeps (clock_gettime(2)): who wakes would
    believe that no time has passed since its last record, and begin messages under a lease that others took hours ago.
    """
    boot_time: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)
