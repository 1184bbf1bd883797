"""The pause of a broker that was read to its end: as long as half of the messages may wait. Pure."""

from typing import Final

STEP: Final = 1.05
"""Factor of the estimate for each longer or shorter batch. It settles at the median, and one batch of a minute moves it no more
than any other."""
TOOK_FIRST_S: Final = 0.01
TOOK_MIN_S: Final = 0.0005
TOOK_MAX_S: Final = 1.0
"""Bounds of the estimate."""
BUSY_MIN: Final = 0.5
BUSY_MAX: Final = 0.9
"""Share of a core: a worker that uses more at low traffic makes too many transactions. A target below 20 ms allows more."""
HASTE_S: Final = 0.01
"""Product of the target and the share, between the two."""
WINDOW_S: Final = 0.1
"""Interval of measuring the CPU."""
SLOWER: Final = 1.1
QUICKER: Final = 1.3
"""Factors of the least wait after a busy interval, and after any other."""
LEAST_MIN_S: Final = 0.001
LEAST_MAX_TARGETS: Final = 4
"""With a batch's time the upper bound of the least wait: then waiting no longer helps."""


class FetchInterval:
    """The interval of one worker. In any thread.

    A message that comes in the pause waits for half of it, on average, and then for its transaction. Therefore half of the messages can be
    read within the target if half the pause and the transaction take as long as the target. If transactions take nearly
    that long, a pause remains: a lane runs one transaction at a time, and later messages cost least as one batch. If many lanes have
    a little to do each, the pause grows until transactions leave half of a core.
    """

    def __init__(self, target_s: float) -> None:
        """``target_s``: readers of committed data get half of the messages so soon after their arrival."""
        self.target_s = target_s
        self.took_s = TOOK_FIRST_S
        """Median of a batch's time, from the request until readers can have it."""
        self._least_s = LEAST_MIN_S
        self._looked: tuple[float, float] | None = None

    @property
    def busy(self) -> float:
        """The share of a core that transactions may use."""
        return min(BUSY_MAX, max(BUSY_MIN, HASTE_S / self.target_s))

    @property
    def wait_s(self) -> float:
        """The pause between a fetch that reached the end and the next one of that broker."""
        least = min(self._least_s, LEAST_MAX_TARGETS * self.target_s + self.took_s)
        return max(2 * (self.target_s - self.took_s), self.took_s / 2, least)

    def look(self, cpu_s: float, now: float) -> None:
        """Note the CPU seconds of the process and the time, while nothing is behind."""
        if self._looked is None or cpu_s < self._looked[0]:
            self._looked = cpu_s, now
            return
        used, passed = cpu_s - self._looked[0], now - self._looked[1]
        if passed < WINDOW_S:
            return
        self._looked = cpu_s, now
        if used > self.busy * passed:
            # From the wait of the moment on: a least wait below it would take its time to be one.
            self._least_s = min(self.wait_s * SLOWER, LEAST_MAX_TARGETS * self.target_s + self.took_s)
        else:
            self._least_s = max(LEAST_MIN_S, self._least_s / QUICKER)

    def report(self) -> dict[str, float]:
        """Intervals for ``/health``, in milliseconds."""
        report = {"latency_target_ms": self.target_s, "batch_ms": self.took_s, "fetch_wait_ms": self.wait_s}
        return {name: round(seconds * 1000, 1) for name, seconds in report.items()}

    def took(self, seconds: float) -> None:
        """Take note of the time of a batch."""
        estimate = self.took_s * STEP if seconds > self.took_s else self.took_s / STEP
        self.took_s = min(TOOK_MAX_S, max(TOOK_MIN_S, estimate))
