"""Clock for leases: it never goes back, and continues while the machine is suspended."""

import time


def now() -> float:
    """Return seconds since an unspecified time in the past, comparable on this machine only.

    ``CLOCK_MONOTONIC``, the clock of Python and asyncio, pauses while Linux is suspended (clock_gettime(2)). With it, a resumed process
    would miss the time of the suspension, and start messages under a lease that another consumer took hours ago.
    """
    boot_time: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)
