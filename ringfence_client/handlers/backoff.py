"""Delays that grow between the attempts of a message. Pure."""

import math
import random
from dataclasses import dataclass
from typing import Final

RETRY_FIRST_S: Final = 0.1
RETRY_MULTIPLIER: Final = 2.0
RETRY_MAX_S: Final = 60.0
"""Growth and longest delay where the attempts need not be spread over a retry time."""
RETRY_JITTER: Final = 0.2
_BISECTIONS: Final = 60
_ROUNDING: Final = 1e-9
"""Part of a sum that may be lost in its computation."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays of which each is a multiple of the one before it, up to a limit."""

    first: float
    """Seconds, more than 0."""
    multiplier: float
    """At least 1."""
    longest: float
    """Seconds, at least :attr:`first`; infinity = no limit."""
    jitter: float
    """Fraction, from 0 to 1, by which a delay is longer or shorter at random, so that many spread."""

    def delay(self, number: int) -> float:
        """Return one of the delays, in seconds; ``number``: from 1 on."""
        grown = self.longest if number > self._growing else self.first * self.multiplier ** (number - 1)
        return min(self.longest, grown) * random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311

    def total(self, count: int) -> float:
        """Return the sum of the first so many delays without their jitter, in seconds."""
        growing = min(count, self._growing)
        if self.multiplier == 1:
            return self.first * count
        try:
            grown = self.first * math.expm1(growing * math.log(self.multiplier)) / (self.multiplier - 1)
        except OverflowError:
            return math.inf
        return grown + (self.longest * (count - growing) if count > growing else 0.0)

    def reaches(self, seconds: float, count: int) -> bool:
        """Whether the first so many delays take at least so many seconds."""
        return self.total(count) >= seconds * (1 - _ROUNDING)

    @property
    def _growing(self) -> float:
        """How many delays are shorter than the longest."""
        if self.multiplier == 1 or math.isinf(self.longest):
            return math.inf
        return math.ceil(math.log(self.longest / self.first) / math.log(self.multiplier))


@dataclass(frozen=True, slots=True)
class DelayOptions:
    """A user's choice of delays. A value that is None follows from the number of attempts and their time."""

    first: float = RETRY_FIRST_S
    multiplier: float | None = None
    longest: float | None = None
    jitter: float = RETRY_JITTER

    @property
    def usual(self) -> Backoff:
        """Delays that need not be spread over a retry time."""
        longest = self.longest or max(RETRY_MAX_S, self.first)
        return Backoff(self.first, self.multiplier or RETRY_MULTIPLIER, longest, self.jitter)

    def spread(self, count: int, seconds: float) -> Backoff:
        """Return so many delays, two or more, that sum up to ``seconds``: more than without growth, and no more than the longest allows."""
        longest = self.longest or math.inf
        low, high = 1.0, seconds / self.first
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            if Backoff(self.first, middle, longest, self.jitter).total(count) < seconds:
                low = middle
            else:
                high = middle
        return Backoff(self.first, high, longest, self.jitter)
