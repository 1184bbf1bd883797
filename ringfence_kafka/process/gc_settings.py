"""Settings of Python's garbage collector and the C library's allocator, for processes with many objects and few cycles."""

import ctypes
import functools
import gc
from typing import Final

THRESHOLDS: Final = (200_000, 20, 100)
LARGE_BYTES: Final = 2**18
_M_MMAP_THRESHOLD: Final = -3
"""Value in malloc.h."""


def collect_rarely() -> None:
    """Make garbage collections rare. Call it after all modules are loaded.

    A batch makes some hundred thousand objects, which reference counting alone frees. With Python's default thresholds the collector
    takes about 30 % of a worker's time (bench/measurements.md).
    """
    gc.collect()
    gc.freeze()  # loaded objects live as long as the process
    gc.set_threshold(*THRESHOLDS)


@functools.cache
def give_back_large() -> None:
    """Let the C library return the memory of large messages at once, if it supports this.

    glibc starts with this behaviour. After it frees the first such block, it takes all blocks up to that size from its heap, which
    shrinks only at its end. A worker of 64 lanes with unfinished messages of 900,000 bytes then kept 402 MiB instead of 180
    (bench/measurements.md). With small messages this setting takes more CPU than everything else: their batches are as large, and each
    would need new pages from the system.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
