"""When a failed message is tried again, when it is given up, and when the whole consumer slows down. Pure.

Two things fail, and they ask for opposite answers. *A message* that no handler can do must not hold up its group for ever: it is
given up after so many attempts, and not before so much time. *What all handlers depend on*, such as a database, fails for every
message at once: to give those up would empty the topic into the dead letters. :class:`Breaker` tells the two apart.
"""

from typing import Final, NamedTuple

from ringfence_kafka.waiting import back_off

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 60.0
TRIPPING: Final = 25
"""So many different messages that fail without a success between them open the breaker."""
PROBE_FIRST_S: Final = 1.0
PROBE_MAX_S: Final = 10.0
"""Between two attempts while it is open."""


class Failures(NamedTuple):
    """Of one message: how often its handler failed, and since when."""

    attempts: int
    since_ms: int
    """Of the first, by the wall clock: it is counted on by whoever takes the partition over."""


class RetryPolicy:
    """How long a message is tried."""

    def __init__(self, max_attempts: int, retry_time: float) -> None:
        """A message is given up after ``max_attempts`` failed ones, and not before ``retry_time`` seconds since the first."""
        self.max_attempts = max_attempts
        self.retry_time = retry_time

    def exhausted(self, attempts: int, failures: Failures, now_ms: int) -> bool:
        """Whether a message whose handler has just failed is given up.

        The clock of whoever had it first may be ahead of ours: without a time there is none to wait for.
        """
        lasted_ms = max(0, now_ms - failures.since_ms)
        return attempts >= self.max_attempts and lasted_ms >= self.retry_time * 1000

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

    @staticmethod
    def delay(attempt: int) -> float:
        """Seconds until the next attempt: 0.1, 0.2, … up to a minute, each a little off so that many do not come at once."""
        return back_off(attempt, RETRY_FIRST_S, RETRY_MAX_S)


class Breaker:
    """Notices that nearly everything fails; then few attempts are begun until some succeed again.

    It opens when :data:`TRIPPING` different messages have failed in a row. A topic with some that fail for ever does not get there:
    others succeed between them. While it is open nothing may be given up.
    """

    def __init__(self, concurrency: int, *, enabled: bool = True) -> None:
        """``concurrency``: attempts at once while it is closed."""
        self._concurrency = concurrency
        self._enabled = enabled
        self._failed: set[object] = set()
        self._limit = 0
        """Attempts at once while it is open; 0 = it is closed."""
        self._pause = PROBE_FIRST_S
        self._next_at = 0.0
        self.opened_at = 0.0
        """By the clock of whoever calls, s."""
        self.reason = ""
        """Of the last failure."""

    @property
    def open(self) -> bool:
        """Whether nearly everything fails."""
        return self._limit > 0

    def failed(self, message: object, reason: str, now: float) -> bool:
        """An attempt failed. Returns whether that opened it."""
        self._failed.add(message)
        self.reason = reason
        if self._limit:
            self._limit //= 2
            if not self._limit:
                self._limit = 1
                self._next_at = now + self._pause
                self._pause = min(PROBE_MAX_S, 2 * self._pause)
            return False
        if not self._enabled or len(self._failed) < TRIPPING:
            return False
        self._limit = 1
        self._pause = PROBE_FIRST_S
        self.opened_at, self._next_at = now, now + self._pause
        return True

    def succeeded(self) -> bool:
        """An attempt ended well. Returns whether that closed it."""
        if self._failed:
            self._failed.clear()
        if not self._limit:
            return False
        self._limit *= 2
        self._pause, self._next_at = PROBE_FIRST_S, 0.0
        if self._limit < self._concurrency:
            return False
        self._limit = 0
        return True

    def room(self, running: int, now: float) -> bool:
        """Whether another attempt may begin beside so many."""
        return not self._limit or (running < self._limit and now >= self._next_at)

    def wait(self, now: float) -> float:
        """Seconds until one may, as far as time alone decides."""
        return max(0.0, self._next_at - now)
