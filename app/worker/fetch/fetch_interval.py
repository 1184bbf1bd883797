"""Pause before a broker that was read to its end is asked again, derived from the latency target. Pure."""

from typing import Final

STEP: Final = 1.05
"""Factor of the estimate for each longer or shorter batch, so that it settles at the median and a batch of a
minute moves it no more than any other.
"""
TOOK_FIRST_S: Final = 0.01
TOOK_MIN_S: Final = 0.0005
TOOK_MAX_S: Final = 1.0
"""Bounds of the estimate, in seconds; TOOK_FIRST_S is its first value."""
BUSY_MIN: Final = 0.5
BUSY_MAX: Final = 0.9
"""Bounds of the share of a core for transactions. More at low traffic means too many of them; a latency
target below 20 ms allows more than the lower bound.
"""
HASTE_S: Final = 0.01
"""Product of target and share between the two bounds, in seconds."""
WINDOW_S: Final = 0.1
"""Interval of CPU measurements, in seconds."""
SLOWER: Final = 1.1
QUICKER: Final = 1.3
"""Factor of the minimum pause after a busy interval (SLOWER), and divisor after any other (QUICKER)."""
LEAST_MIN_S: Final = 0.001
LEAST_MAX_TARGETS: Final = 4
"""Bounds of the minimum pause: seconds, and latency targets plus a batch's time. Longer does not help."""


class FetchInterval:
    """Fetch pause of one worker. Thread-safe.

    A message that arrives in a pause waits for half of it on average, and then for its transaction. Half of
    the messages are readable within the target if half a pause plus a transaction takes as long as the
    target. If transactions take nearly that long, a pause remains: a lane runs one transaction at a time, and
    later messages cost least as one batch. If many lanes have little work each, the pause grows until
    transactions leave half of a core free.
    """

    def __init__(self, target_s: float) -> None:
        """Take the time (s) within which readers of committed data should get half of the messages."""
        self.target_s = target_s
        self.took_s = TOOK_FIRST_S
        """Median time of a batch, from its fetch request until readers can read it, in seconds."""
        self._least_s = LEAST_MIN_S
        self._looked: tuple[float, float] | None = None

    @property
    def busy(self) -> float:
        """Share of a core that transactions may use."""
        return min(BUSY_MAX, max(BUSY_MIN, HASTE_S / self.target_s))

    @property
    def wait_s(self) -> float:
        """Pause between a fetch that reached the end and the next fetch from that broker, in seconds."""
        least = min(self._least_s, LEAST_MAX_TARGETS * self.target_s + self.took_s)
        return max(2 * (self.target_s - self.took_s), self.took_s / 2, least)

    def record_cpu(self, cpu_s: float, now: float) -> None:
        """Record the CPU time of the process and the current time, while no partition is behind."""
        if self._looked is None or cpu_s < self._looked[0]:
            self._looked = cpu_s, now
            return
        used, passed = cpu_s - self._looked[0], now - self._looked[1]
        if passed < WINDOW_S:
            return
        self._looked = cpu_s, now
        if used > self.busy * passed:
            # Start from the present pause: a minimum far below it would take long to have an effect.
            self._least_s = min(self.wait_s * SLOWER, LEAST_MAX_TARGETS * self.target_s + self.took_s)
        else:
            self._least_s = max(LEAST_MIN_S, self._least_s / QUICKER)

    def report(self) -> dict[str, float]:
        """Return the intervals for ``/health``, in milliseconds."""
        report = {"latency_target_ms": self.target_s, "batch_ms": self.took_s, "fetch_wait_ms": self.wait_s}
        return {name: round(seconds * 1000, 1) for name, seconds in report.items()}

    def took(self, seconds: float) -> None:
        """Record the time of a batch."""
        estimate = self.took_s * STEP if seconds > self.took_s else self.took_s / STEP
        self.took_s = min(TOOK_MAX_S, max(TOOK_MIN_S, estimate))
