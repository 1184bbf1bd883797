"""When a failed message is tried again, and when it is given up. Pure."""

import bisect
from typing import Final, NamedTuple

from ringfence_client.handlers.backoff import Backoff, DelayOptions

MAX_ATTEMPTS: Final = 5
RETRY_TIME_S: Final = 600.0
"""Longer than most restarts of what handlers depend on."""
ATTEMPTS_MAX: Final = 10_000
"""More that follow from a retry time are a typing error."""


class Failures(NamedTuple):
    """How often the handler of one message failed, and since when."""

    attempts: int
    since_ms: int
    """Time of the first failure, by the wall clock. The next holder of the partition continues the count."""


class RetryPolicy:
    """How long a message is tried.

    A message has at most ``max_attempts`` attempts. Delays between them grow, so that a passing fault costs little and the last attempt comes no
    earlier than ``retry_time`` after the first failure.
    """

    def __init__(self, max_attempts: int, retry_time: float, options: DelayOptions | None = None) -> None:
        """``retry_time``: seconds; with a single attempt there is nothing to spread over it.

        Raises:
            ValueError: the delays end before that; the text names the options.
        """
        self.max_attempts = max_attempts
        self.retry_time = retry_time
        options, delays = options or DelayOptions(), max_attempts - 1
        self._backoff = self._beyond = options.usual
        """Until the last attempt, and beyond it while nothing may be given up."""
        if delays and not self._backoff.reaches(retry_time, delays):
            _check_reach(options, delays, retry_time)
            if delays > 1:
                self._backoff = options.spread(delays, retry_time)

    @property
    def seconds(self) -> float:
        """Time from the first failure to the last attempt, if handlers take no time and ask for no delay."""
        return max(self.retry_time, self._backoff.total(self.max_attempts - 1))

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
        else:
            delay = (self._backoff if attempt < self.max_attempts else self._beyond).delay(attempt)
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
        """Count attempts whose end nobody recorded."""
        return attempts - (failures.attempts if failures is not None else 0)


def fitting_policy(max_attempts: int | None, retry_time: float | None, options: DelayOptions) -> RetryPolicy:
    """Return the policy of a user's options; what is None follows from the others.

    Raises:
        ValueError: they contradict one another; the text names them.
    """
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
    """Return the smallest number of attempts with which these delays take so many seconds."""
    delays = bisect.bisect_left(range(ATTEMPTS_MAX), True, key=lambda count: backoff.reaches(seconds, count))
    if delays >= ATTEMPTS_MAX:
        raise ValueError(
            f"retry_time = {seconds:g}: more than {ATTEMPTS_MAX:,} attempts fit into it with retry_delay = {backoff.first:g}, "
            f"retry_multiplier = {backoff.multiplier:g} and retry_max = {backoff.longest:g}: raise the delays, or give max_attempts"
        )
    return delays + 1


def _check_reach(options: DelayOptions, delays: int, retry_time: float) -> None:
    """Refuse delays that cannot last for the retry time."""
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
