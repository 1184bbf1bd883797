"""How long a broker that was read to its end is left alone: as long as half of the messages may wait, by what transactions take. Pure."""

from typing import Final

STEP: Final = 1.05
"""By so much an estimate moves with each that was longer, or shorter: it settles where half are, and one that took a minute moves
it no more than any other."""
TOOK_FIRST_S: Final = 0.01
TOOK_MIN_S: Final = 0.0005
TOOK_MAX_S: Final = 1.0
"""Bounds of the estimate: what lies beyond is no matter of spacing."""


class Spacing:
    """Of one worker. In any thread.

    A message that comes while a broker is left alone waits for half of that, on average, and then for its transaction. So half of
    them are committed within the target where ``wait + transaction = target`` for a wait of half the spacing. Where transactions take
    so long that this leaves little, fetches keep their distance all the same: a lane runs one transaction at a time, and what comes
    meanwhile costs least as one batch.
    """

    def __init__(self, target_s: float) -> None:
        """``target_s``: within so many seconds of its arrival half of the messages are to be committed."""
        self.target_s = target_s
        self._took_s = TOOK_FIRST_S

    @property
    def took_s(self) -> float:
        """What a batch takes from its fetch to its commit: half of the last ones took longer."""
        return self._took_s

    @property
    def wait_s(self) -> float:
        """From one fetch that brought all there was to the next one of that broker."""
        return max(2 * (self.target_s - self._took_s), self._took_s / 2)

    def report(self) -> dict[str, float]:
        """For ``/health``, in milliseconds."""
        found = {"latency_target_ms": self.target_s, "batch_ms": self.took_s, "fetch_wait_ms": self.wait_s}
        return {name: round(seconds * 1000, 1) for name, seconds in found.items()}

    def took(self, seconds: float) -> None:
        """A batch did, from its fetch to its commit."""
        estimate = self._took_s * STEP if seconds > self._took_s else self._took_s / STEP
        self._took_s = min(TOOK_MAX_S, max(TOOK_MIN_S, estimate))
