"""Rules for retries and dead letters of failed messages, and delays that grow between attempts. Pure."""

import bisect
import math
import random
from dataclasses import dataclass
from typing import Final, NamedTuple

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


MAX_ATTEMPTS: Final = 5
RETRY_TIME_S: Final = 600.0
"""Longer than most restarts of services that handlers depend on."""
ATTEMPTS_MAX: Final = 10_000
"""Limit of attempts that are derived from a retry time. A larger number is a typing error."""


class Failures(NamedTuple):
    """Number of failures of one message, and the time of the first one."""

    attempts: int
    since_ms: int
    """Time of the first failure, by the wall clock. The next holder of the partition continues the count."""


class RetryPolicy:
    """Number and times of a message's attempts.

    A message has at most ``max_attempts`` attempts. Delays between them grow, so that a short fault costs little. The last attempt is not
    earlier than ``retry_time`` after the first failure.
    """

    def __init__(self, max_attempts: int, retry_time: float, options: DelayOptions | None = None) -> None:
        """``retry_time`` is in seconds; a single attempt ignores it. Raises ValueError if the delays together are shorter."""
        self.max_attempts = max_attempts
        self.retry_time = retry_time
        options, delays = options or DelayOptions(), max_attempts - 1
        self._backoff = self._beyond = options.usual
        """Delays until the last attempt, and after it while the breaker keeps messages from being given up."""
        if delays and not self._backoff.reaches(retry_time, delays):
            _check_reach(options, delays, retry_time)
            if delays > 1:
                self._backoff = options.spread(delays, retry_time)

    @property
    def seconds(self) -> float:
        """Time from the first failure to the last attempt, in seconds, if handlers take no time and ask for no delay."""
        return max(self.retry_time, self._backoff.total(self.max_attempts - 1))

    def delay(self, attempt: int, failures: Failures, now_ms: int, asked: float | None = None) -> float:
        """Return the seconds until the next attempt: those that the handler ``asked`` for, or more before the last attempt.

        ``attempt`` is the number of the failed one. It exceeds the maximum while no message may be given up.
        """
        if asked is not None:
            delay = asked
        else:
            delay = (self._backoff if attempt < self.max_attempts else self._beyond).delay(attempt)
        return max(delay, self.before_last(attempt, failures, now_ms))

    def before_last(self, attempts: int, failures: Failures, now_ms: int) -> float:
        """Return the seconds before the last attempt may start; 0 = at once, or more attempts follow.

        A new holder does not know the delay of its predecessor. Without this wait, a few restarts would use up all attempts.
        """
        if attempts != self.max_attempts - 1:
            return 0.0
        # The previous holder's clock may be ahead, so the difference may be negative.
        passed = max(0, now_ms - failures.since_ms) / 1000
        return max(0.0, self.retry_time - passed)

    def died_of_it(self, attempts: int, failures: Failures | None) -> bool:
        """Return whether a message that ran when its consumers died is given up without another attempt."""
        return self._deaths(attempts, failures) >= self.max_attempts

    def last_before_death(self, attempts: int, failures: Failures | None) -> bool:
        """Return whether one more death of its consumer would give the message up."""
        return self._deaths(attempts, failures) >= max(1, self.max_attempts - 1)

    @staticmethod
    def _deaths(attempts: int, failures: Failures | None) -> int:
        """Return the number of attempts without a recorded outcome."""
        return attempts - (failures.attempts if failures is not None else 0)


def fitting_policy(max_attempts: int | None, retry_time: float | None, options: DelayOptions) -> RetryPolicy:
    """Return the policy of a user's options. Options that are None are derived from the others. Raises ValueError for a contradiction."""
    if options.longest is not None and options.longest < options.first:
        raise ValueError(
            f"retry_max = {options.longest:g}: less than the first delay, retry_delay = {options.first:g}"
        )
    if max_attempts == 1 and retry_time:
        raise ValueError(
            f"retry_time = {retry_time:g}: has no effect with max_attempts = 1, which tries a message once: leave out one of them"
        )
    if retry_time is None:
        retry_time = RETRY_TIME_S if max_attempts is None else 0.0
    if max_attempts is None:
        follows = retry_time > 0 and (options.multiplier is not None or options.longest is not None)
        max_attempts = _attempts(options.usual, retry_time) if follows else MAX_ATTEMPTS
    return RetryPolicy(max_attempts, retry_time, options)


def _attempts(backoff: Backoff, seconds: float) -> int:
    """Return the smallest number of attempts whose delays take at least these seconds."""
    delays = bisect.bisect_left(range(ATTEMPTS_MAX), True, key=lambda count: backoff.reaches(seconds, count))
    if delays >= ATTEMPTS_MAX:
        raise ValueError(
            f"retry_time = {seconds:g}: more than {ATTEMPTS_MAX:,} attempts fit into it with retry_delay = {backoff.first:g}, "
            f"retry_multiplier = {backoff.multiplier:g} and retry_max = {backoff.longest:g}: raise the delays, or give max_attempts"
        )
    return delays + 1


def _check_reach(options: DelayOptions, delays: int, retry_time: float) -> None:
    if options.multiplier is not None:
        usual = options.usual
        raise ValueError(
            f"retry_multiplier = {usual.multiplier:g}: the delays between max_attempts = {delays + 1}, of at most {usual.longest:g} s each, take "
            f"{usual.total(delays):g} s, less than retry_time = {retry_time:g}: leave out max_attempts, retry_time or retry_multiplier"
        )
    if options.longest is None:
        return
    most = options.first + options.longest * (delays - 1) if delays > 1 else options.longest
    if most < retry_time:
        raise ValueError(
            f"retry_max = {options.longest:g}: the delays between max_attempts = {delays + 1} take {most:g} s at most, less than "
            f"retry_time = {retry_time:g}: leave out max_attempts or retry_time, or raise retry_max"
        )
