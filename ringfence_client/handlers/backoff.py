"""Delays that grow between the attempts of a message. Pure."""

import math
import random
from dataclasses import dataclass
from typing import Final

RETRY_FIRST_S: Final = 0.1
RETRY_MULTIPLIER: Final = 2.0
RETRY_MAX_S: Final = 60.0
"""Default growth and longest delay, if the attempts need not cover a retry time."""
RETRY_JITTER: Final = 0.2
_BISECTIONS: Final = 60
_ROUNDING: Final = 1e-9
"""Share of a sum that rounding may lose."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that each multiply the previous one, up to a limit."""

    first: float
    """First delay in seconds, more than 0."""
    multiplier: float
    """At least 1."""
    longest: float
    """Longest delay in seconds, at least :attr:`first`; infinity = no limit."""
    jitter: float
    """Fraction, from 0 to 1, by which a delay varies at random, so that retries of many messages spread."""

    def delay(self, number: int) -> float:
        """Return a delay, in seconds; ``number``: from 1."""
        grown = self.longest if number > self._growing else self.first * self.multiplier ** (number - 1)
        return min(self.longest, grown) * random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311

    def total(self, count: int) -> float:
        """Return the sum of the first ``count`` delays without jitter, in seconds."""
        growing = min(count, self._growing)
        if self.multiplier == 1:
            return self.first * count
        try:
            grown = self.first * math.expm1(growing * math.log(self.multiplier)) / (self.multiplier - 1)
        except OverflowError:
            return math.inf
        return grown + (self.longest * (count - growing) if count > growing else 0.0)

    def reaches(self, seconds: float, count: int) -> bool:
        """Return whether the first ``count`` delays take at least these seconds."""
        return self.total(count) >= seconds * (1 - _ROUNDING)

    @property
    def _growing(self) -> float:
        """Number of delays that are shorter than the longest."""
        if self.multiplier == 1 or math.isinf(self.longest):
            return math.inf
        return math.ceil(math.log(self.longest / self.first) / math.log(self.multiplier))


@dataclass(frozen=True, slots=True)
class DelayOptions:
    """Delay options of a user. A value of None is derived from the number of attempts and their time."""

    first: float = RETRY_FIRST_S
    multiplier: float | None = None
    longest: float | None = None
    jitter: float = RETRY_JITTER

    @property
    def usual(self) -> Backoff:
        """Delays that need not cover a retry time."""
        longest = self.longest or max(RETRY_MAX_S, self.first)
        return Backoff(self.first, self.multiplier or RETRY_MULTIPLIER, longest, self.jitter)

    def spread(self, count: int, seconds: float) -> Backoff:
        """Return two or more delays that sum up to ``seconds``, as far as the longest delay allows."""
        longest = self.longest or math.inf
        low, high = 1.0, seconds / self.first
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            if Backoff(self.first, middle, longest, self.jitter).total(count) < seconds:
                low = middle
            else:
                high = middle
        return Backoff(self.first, high, longest, self.jitter)
