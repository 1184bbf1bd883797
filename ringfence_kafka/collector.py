"""Python's garbage collector, set for processes that make and free many objects and few cycles."""

import gc
from typing import Final

THRESHOLDS: Final = (200_000, 20, 100)


def collect_rarely() -> None:
    """Call it when all is loaded: a batch makes some hundred thousand objects that reference counting alone frees again.

    With Python's default thresholds the collector takes some 30 % of a worker's time (bench/measurements.md).
    """
    gc.collect()
    gc.freeze()  # what is loaded by now stays
    gc.set_threshold(*THRESHOLDS)
