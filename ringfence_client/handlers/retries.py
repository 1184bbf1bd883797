"""When a failed message is tried again, and when it is given up. Pure."""

import random
from typing import Final, NamedTuple

from ringfence_kafka.concurrency.timeouts import back_off

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 60.0
"""Longest delay where the attempts need not be spread over a retry time."""
_BISECTIONS: Final = 60


class Failures(NamedTuple):
    """Of one message: how often its handler failed, and since when."""

    attempts: int
    since_ms: int
    """Of the first, by the wall clock: it is counted on by whoever takes the partition over."""


class RetryPolicy:
    """How long a message is tried.

    A message has at most ``max_attempts`` attempts. Delays between them grow, so that a passing fault costs little and the last attempt comes no
    earlier than ``retry_time`` after the first failure.
    """

    def __init__(self, max_attempts: int, retry_time: float) -> None:
        """``retry_time``: seconds; with a single attempt there is nothing to spread over it."""
        self.max_attempts = max_attempts
        self.retry_time = retry_time
        self._ratio = _ratio(max_attempts - 1, retry_time)

    def exhausted(self, attempts: int) -> bool:
        """Whether a message whose handler has just failed is given up."""
        return attempts >= self.max_attempts

    def delay(self, attempt: int, failures: Failures, now_ms: int, asked: float | None = None) -> float:
        """Return the seconds until the next attempt.

        Args:
            attempt: number of the attempt that failed, from 1 on. It exceeds the maximum while nothing may be given up.
            failures: of the message, this one included.
            now_ms: wall clock.
            asked: what the handler asked for, s; the last attempt may come later than that.
        """
        if asked is not None:
            delay = asked
        elif self._ratio is None or attempt >= self.max_attempts:
            delay = back_off(attempt, RETRY_FIRST_S, RETRY_MAX_S)
        else:
            delay = RETRY_FIRST_S * self._ratio ** (attempt - 1) * random.uniform(0.8, 1.2)  # noqa: S311
        return max(delay, self.before_last(attempt, failures, now_ms))

    def before_last(self, attempts: int, failures: Failures, now_ms: int) -> float:
        """Return the seconds before the last attempt may begin; 0 = at once, or another attempt comes next.

        A new holder does not know the delay of its predecessor. Without this wait a few restarts would use up all attempts.
        """
        if attempts != self.max_attempts - 1:
            return 0.0
        # The clock of the previous holder may be ahead of ours: less than nothing has not passed.
        passed = max(0, now_ms - failures.since_ms) / 1000
        return max(0.0, self.retry_time - passed)

    def died_of_it(self, attempts: int, failures: Failures | None) -> bool:
        """Whether a message that was running when its consumer died is given up without another attempt."""
        return self._deaths(attempts, failures) >= self.max_attempts

    def last_before_death(self, attempts: int, failures: Failures | None) -> bool:
        """Whether one more death of its consumer would give it up."""
        return self._deaths(attempts, failures) >= max(1, self.max_attempts - 1)

    @staticmethod
    def _deaths(attempts: int, failures: Failures | None) -> int:
        """Attempts that ended without a word."""
        return attempts - (failures.attempts if failures is not None else 0)


def _ratio(delays: int, seconds: float) -> float | None:
    """Return the growth with which so many delays sum up to ``seconds``; None = doubling them takes as long already."""
    doubled = sum(min(RETRY_MAX_S, RETRY_FIRST_S * 2.0**index) for index in range(min(delays, 10)))
    doubled += RETRY_MAX_S * max(0, delays - 10)
    if delays < 2 or doubled >= seconds:
        return None
    low, high = 1.0, seconds / RETRY_FIRST_S
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _sum(middle, delays, seconds) < seconds:
            low = middle
        else:
            high = middle
    return high


def _sum(ratio: float, delays: int, limit: float) -> float:
    """Return the sum of growing delays, or a number above ``limit``."""
    total, delay = 0.0, RETRY_FIRST_S
    for _ in range(delays):
        total += delay
        if total > limit:
            break
        delay *= ratio
    return total
