"""Histogram of the durations of a handler's runs."""

from bisect import bisect_left
from typing import Final

BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets, in seconds. Handlers range from a cache lookup to a job of minutes."""


class RunTimes:
    """Number of runs by duration."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """Number of runs by bucket. The last bucket is above all bounds."""
        self.sum_s = 0.0
        self.count = 0

    def record(self, seconds: float) -> None:
        """Count a run. Called for each message: a library's histogram takes three times as long."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds
        self.count += 1
