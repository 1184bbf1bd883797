"""Attempts at the unfinished messages of one partition. Pure."""

from collections.abc import Callable, Iterable

from ringfence_client.handlers.retries import Failures
from ringfence_client.progress.progress_record import Progress


class AttemptLog:
    """Messages that handlers began, failed at, or have now."""

    def __init__(self, progress: Progress, is_due: Callable[[int], bool]) -> None:
        """``is_due``: whether a message is unfinished. Attempts at a finished one would be carried on for ever."""
        self.counts = {offset: count for offset, count in progress.attempts.items() if is_due(offset)}
        """Attempts by offset."""
        self.failures = {offset: failed for offset, failed in progress.failures.items() if is_due(offset)}
        """Attempts in which a handler failed, by offset."""
        self.delivered = progress.delivered
        """Everything that a handler was ever given lies below this offset."""
        self.running: set[int] = set()
        """Messages that handlers have, or get again before others of their groups."""

    def begin_attempt(self, offset: int, *, counted: bool = True) -> int:
        """Note that a handler gets a message, and return which attempt this is. An uncounted one does not count as a death."""
        self.delivered = max(self.delivered, offset + 1)
        self.running.add(offset)
        attempt = self.counts.get(offset, 0) + 1
        if counted:
            self.counts[offset] = attempt
        return attempt

    def count_attempt(self, offset: int) -> None:
        """Count an attempt that began uncounted."""
        self.counts[offset] = self.counts.get(offset, 0) + 1

    def take_back(self, offset: int, *, counted: bool = True) -> None:
        """Forget the last attempt: it was released, or ended by us."""
        self.running.discard(offset)
        if not counted:
            return
        if self.counts.get(offset, 0) > 1:
            self.counts[offset] -= 1
        else:
            self.counts.pop(offset, None)

    def rest(self, offsets: Iterable[int]) -> None:
        """Note that none of these runs before it is begun again: nobody has to wait for this holder because of them."""
        self.running.difference_update(offsets)

    def fail(self, offset: int, now_ms: int) -> None:
        """Count a failed attempt."""
        known = self.failures.get(offset, Failures(0, now_ms))
        self.failures[offset] = Failures(known.attempts + 1, known.since_ms)

    def start_over(self, offset: int) -> None:
        """Forget how often a message was tried."""
        self.counts.pop(offset, None)
        self.failures.pop(offset, None)

    def forget(self, offset: int) -> None:
        """Forget a message that is finished."""
        self.counts.pop(offset, None)
        self.failures.pop(offset, None)
        self.running.discard(offset)
