"""The clock that leases are judged by: it never goes back, and goes on while the machine sleeps."""

import time
from typing import Final

_BOOT_TIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Seconds since some moment in the past; of this machine alone.

    ``CLOCK_MONOTONIC``, which Python and asyncio go by, stands still while Linux sleeps (clock_gettime(2)): who wakes would
    believe that no time has passed since its last record, and begin messages under a lease that others took hours ago.
    """
    return time.monotonic() if _BOOT_TIME is None else time.clock_gettime(_BOOT_TIME)
