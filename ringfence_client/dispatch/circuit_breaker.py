"""Distinction between an outage and failing messages. Pure.

In an outage, such as a database that is down, every message fails. Giving them up would empty the topic into the dead letters. Only first
attempts tell the two apart: a retry is expected to fail, and proves nothing about other messages.
"""

import math
from typing import Final

RUN_MIN: Final = 25
"""Failed first attempts in a row that open the breaker if most attempts succeeded before."""
RUN_MAX: Final = 500
SHARE_UNKNOWN: Final = 0.75
"""Assumed share of failing first attempts before any is known. It requires a run of 49."""
CHANCE: Final = 1e-6
"""The breaker opens on a run that the previous failing share would produce less often than this."""
MEMORY: Final = 200
"""Number of first attempts after which older ones hardly count in the share."""
PROBE_FIRST_S: Final = 0.25
PROBE_MAX_S: Final = 5.0
"""Longest pause between two attempts while the breaker is open, in seconds."""


class CircuitBreaker:
    """Slows all handlers down while all attempts fail.

    It opens when the usual failing share does not explain a row of failed first attempts: 25 if nearly all succeed, 132 if nine of ten
    fail. While it is open, attempts run one at a time with growing pauses, and no message may be given up. The first success closes it.
    Concurrency then doubles with each further success.
    """

    def __init__(self, concurrency: int, *, enabled: bool = True) -> None:
        """``concurrency``: number of handlers that run at once in normal operation."""
        self._concurrency = concurrency
        self._enabled = enabled
        self._share = SHARE_UNKNOWN
        """Share of first attempts that failed before the present run."""
        self._run = 0
        """First attempts that failed since the last success of any attempt."""
        self._limit = 0
        """Limit of attempts that run at once; 0 = the number of handlers."""
        self._pause = PROBE_FIRST_S
        self._next_at = 0.0
        self.open = False
        """Whether nearly all attempts fail."""
        self.reason = ""

    @property
    def limited(self) -> bool:
        """Whether fewer attempts run than there are handlers: the breaker is open, or closed recently."""
        return self._limit > 0

    @property
    def run_needed(self) -> int:
        """Failed first attempts in a row that open the breaker, by the previous failing share."""
        return max(RUN_MIN, min(RUN_MAX, math.ceil(math.log(CHANCE) / math.log(self._share))))

    def failed(self, *, first: bool, reason: str, now: float) -> bool:
        """Count a failed attempt; return whether it opened the breaker. ``first``: it was the first attempt at its message."""
        self.reason = reason
        self._run += first
        if self.open:
            if now >= self._next_at:  # an attempt from before the opening is not a probe
                self._rest(now)
            return False
        if not self._enabled or not first or self._run < self.run_needed:
            return False
        self.open, self._pause = True, PROBE_FIRST_S
        self._rest(now)
        return True

    def succeeded(self, *, first: bool) -> bool:
        """Count a successful attempt; return whether it closed the breaker."""
        if not self.open:
            # Failures of an outage say nothing about the usual share.
            self._remember(failed=self._run, succeeded=first)
        self._run = 0
        if self._limit:
            self._limit = 2 * self._limit if 2 * self._limit < self._concurrency else 0
        closed, self.open = self.open, False
        self._next_at = 0.0
        return closed

    def room(self, running: int, now: float) -> bool:
        """Return whether another attempt may start beside ``running`` ones."""
        return not self._limit or (running < self._limit and now >= self._next_at)

    def wait(self, now: float) -> float:
        """Return the seconds until the next attempt, as far as time alone decides."""
        return max(0.0, self._next_at - now)

    def _rest(self, now: float) -> None:
        self._limit, self._next_at = 1, now + self._pause
        self._pause = min(PROBE_MAX_S, 2 * self._pause)

    def _remember(self, *, failed: int, succeeded: bool) -> None:
        if failed:
            kept = (1 - 1 / MEMORY) ** failed
            self._share = 1 - (1 - self._share) * kept
        if succeeded:
            self._share *= 1 - 1 / MEMORY
        self._share = min(max(self._share, CHANCE), 1 - CHANCE)
