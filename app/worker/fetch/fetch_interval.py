"""How long a broker that was read to its end is left alone: as long as half of the messages may wait, by what transactions take. Pure."""

from typing import Final

STEP: Final = 1.05
"""By so much an estimate moves with each that was longer, or shorter: it settles where half are, and one that took a minute moves
it no more than any other."""
TOOK_FIRST_S: Final = 0.01
TOOK_MIN_S: Final = 0.0005
TOOK_MAX_S: Final = 1.0
"""Bounds of the estimate: what lies beyond is no matter of spacing."""
BUSY_MIN: Final = 0.5
BUSY_MAX: Final = 0.9
"""Of a core: a worker that uses more than that at a trickle makes too many transactions. Who wants haste, by a target below 20 ms, may
have more."""
HASTE_S: Final = 0.01
"""Target times share of a core that is used for it, between the two."""
WINDOW_S: Final = 0.1
"""So often it is looked how much it uses."""
SLOWER: Final = 1.1
QUICKER: Final = 1.3
"""By so much the least wait grows with each look that finds it busy, and shrinks with each other."""
LEAST_MIN_S: Final = 0.001
LEAST_MAX_TARGETS: Final = 4
"""And a batch's time: so long it is at most, because who has that much to do is busy whatever he waits."""


class FetchInterval:
    """Of one worker. In any thread.

    A message that comes while a broker is left alone waits for half of that, on average, and then for its transaction. So half of
    them can be read within the target where ``wait + transaction = target`` for a wait of half the spacing. Where transactions take
    so long that this leaves little, fetches keep their distance all the same: a lane runs one transaction at a time, and what comes
    meanwhile costs least as one batch. And where many lanes have a little to do each, the wait grows until transactions leave half of a
    core.
    """

    def __init__(self, target_s: float) -> None:
        """``target_s``: within so many seconds of their arrival half of the messages are to be there for readers of committed data."""
        self.target_s = target_s
        self._took_s = TOOK_FIRST_S
        self._least_s = LEAST_MIN_S
        self._looked: tuple[float, float] | None = None

    @property
    def busy(self) -> float:
        """The share of a core that transactions may use."""
        return min(BUSY_MAX, max(BUSY_MIN, HASTE_S / self.target_s))

    @property
    def took_s(self) -> float:
        """What a batch takes, from asking for it until readers can have it: half of the last ones took longer."""
        return self._took_s

    @property
    def wait_s(self) -> float:
        """From one fetch that brought all there was to the next one of that broker."""
        least = min(self._least_s, LEAST_MAX_TARGETS * self.target_s + self._took_s)
        return max(2 * (self.target_s - self._took_s), self._took_s / 2, least)

    def look(self, cpu_s: float, now: float) -> None:
        """What the process has used of CPU until now, by any clock; called as often as one likes while nothing is behind."""
        if self._looked is None or cpu_s < self._looked[0]:
            self._looked = cpu_s, now
            return
        used, passed = cpu_s - self._looked[0], now - self._looked[1]
        if passed < WINDOW_S:
            return
        self._looked = cpu_s, now
        if used > self.busy * passed:
            # From the wait of the moment on: a least wait below it would take its time to be one.
            self._least_s = min(self.wait_s * SLOWER, LEAST_MAX_TARGETS * self.target_s + self._took_s)
        else:
            self._least_s = max(LEAST_MIN_S, self._least_s / QUICKER)

    def report(self) -> dict[str, float]:
        """For ``/health``, in milliseconds."""
        found = {"latency_target_ms": self.target_s, "batch_ms": self.took_s, "fetch_wait_ms": self.wait_s}
        return {name: round(seconds * 1000, 1) for name, seconds in found.items()}

    def took(self, seconds: float) -> None:
        """A batch did, from asking for it until readers can have it."""
        estimate = self._took_s * STEP if seconds > self._took_s else self._took_s / STEP
        self._took_s = min(TOOK_MAX_S, max(TOOK_MIN_S, estimate))
