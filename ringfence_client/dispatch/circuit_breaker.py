"""Distinction between an outage and messages that are at fault themselves. Pure.

An outage, such as a database that is down, fails every message: to give those up would empty the topic into the dead letters. Only first
attempts tell the two apart: a retry is expected to fail, and says nothing about other messages.
"""

import math
from typing import Final

RUN_MIN: Final = 25
"""First attempts that must fail in a row before the breaker opens, where most succeeded before."""
RUN_MAX: Final = 500
SHARE_UNKNOWN: Final = 0.75
"""Share of failing first attempts that is assumed before any is known. It asks for a run of 49."""
CHANCE: Final = 1e-6
"""The breaker opens on a run that the failing share so far would produce less often than this."""
MEMORY: Final = 200
"""First attempts after which the share has mostly forgotten what came before them."""
PROBE_FIRST_S: Final = 0.25
PROBE_MAX_S: Final = 5.0
"""Longest pause between two attempts while it is open."""


class CircuitBreaker:
    """Slows all handlers down while everything fails.

    It opens when their usual failing share does not explain a row of failed first attempts: 25 if nearly everything succeeds, 132 if nine
    of ten fail. While it is open, attempts are made one at a time with growing pauses, and nothing may be given up. The first success
    closes it. Concurrency then doubles with each further success.
    """

    def __init__(self, concurrency: int, *, enabled: bool = True) -> None:
        """``concurrency``: attempts that run at once in normal operation."""
        self._concurrency = concurrency
        self._enabled = enabled
        self._share = SHARE_UNKNOWN
        """Share of first attempts that failed before the present run."""
        self._run = 0
        """First attempts that failed since the last success of any attempt."""
        self._limit = 0
        """Attempts that may run at once; 0 = as many as there are handlers."""
        self._pause = PROBE_FIRST_S
        self._next_at = 0.0
        self.open = False
        """Whether nearly everything fails."""
        self.opened_at = 0.0
        """By the caller's clock, s."""
        self.reason = ""
        """Text of the last failure."""

    @property
    def limited(self) -> bool:
        """Whether fewer attempts run than there are handlers: it is open, or was until a moment ago."""
        return self._limit > 0

    @property
    def run_needed(self) -> int:
        """First attempts that must fail in a row, by the share that failed before."""
        return max(RUN_MIN, min(RUN_MAX, math.ceil(math.log(CHANCE) / math.log(self._share))))

    def failed(self, *, first: bool, reason: str, now: float) -> bool:
        """Count a failed attempt; whether this opened the breaker.

        Args:
            first: whether it was the first attempt at its message.
            reason: shown to the operator.
            now: s, by a clock that does not step.
        """
        self.reason = reason
        self._run += first
        if self.open:
            if now >= self._next_at:  # else it began before the breaker opened, and is no probe
                self._rest(now)
            return False
        if not self._enabled or not first or self._run < self.run_needed:
            return False
        self.open, self.opened_at, self._pause = True, now, PROBE_FIRST_S
        self._rest(now)
        return True

    def succeeded(self, *, first: bool) -> bool:
        """Count an attempt that ended well. Returns whether this closed the breaker."""
        if not self.open:
            # An outage says nothing about how often messages fail otherwise.
            self._remember(failed=self._run, succeeded=first)
        self._run = 0
        if self._limit:
            self._limit = 2 * self._limit if 2 * self._limit < self._concurrency else 0
        closed, self.open = self.open, False
        self._next_at = 0.0
        return closed

    def room(self, running: int, now: float) -> bool:
        """Whether another attempt may begin beside so many."""
        return not self._limit or (running < self._limit and now >= self._next_at)

    def wait(self, now: float) -> float:
        """Seconds until one may, as far as time alone decides."""
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
