"""Settings of Python's garbage collector and the C library's memory for processes with many objects and few cycles."""

import ctypes
import functools
import gc
from typing import Final

THRESHOLDS: Final = (200_000, 20, 100)
LARGE_BYTES: Final = 2**18
_M_MMAP_THRESHOLD: Final = -3
"""As malloc.h has it."""


def collect_rarely() -> None:
    """Call it when all is loaded: a batch makes some hundred thousand objects that reference counting alone frees again.

    With Python's default thresholds the collector takes some 30 % of a worker's time (bench/measurements.md).
    """
    gc.collect()
    gc.freeze()  # what is loaded by now stays
    gc.set_threshold(*THRESHOLDS)


@functools.cache
def give_back_large() -> None:
    """Have the C library return the memory of large messages at once, if it supports that.

    glibc begins so. After the first such block is freed, it takes all blocks up to that size from its heap, which shrinks only at its end.
    A worker of 64 lanes that had messages of 900,000 bytes under way kept 402 MiB, and not 180 (bench/measurements.md). With small messages
    this setting takes more CPU than all the rest. Batches of them are as large, and the system would provide their pages again each time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
