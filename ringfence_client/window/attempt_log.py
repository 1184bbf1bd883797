"""Attempts at the unfinished messages of one partition. Pure."""

from collections.abc import Callable, Iterable

from ringfence_client.handlers.retries import Failures
from ringfence_client.progress.progress_record import Progress


class AttemptLog:
    """Counts of attempts and failures, and the messages that handlers have."""

    def __init__(self, progress: Progress, is_due: Callable[[int], bool]) -> None:
        """Load the counts of the last progress record. ``is_due`` returns whether a message is unfinished; other counts are dropped."""
        self.counts = {offset: count for offset, count in progress.attempts.items() if is_due(offset)}
        self.failures = {offset: failed for offset, failed in progress.failures.items() if is_due(offset)}
        self.delivered = progress.delivered
        """Every message that a handler ever received has a lower offset."""
        self.running: set[int] = set()
        """Messages that handlers have, and messages whose next attempt precedes the rest of their groups."""

    def begin_attempt(self, offset: int, *, counted: bool = True) -> int:
        """Record that a handler receives a message; return the number of its attempt. An uncounted attempt is not suspected after a crash."""
        self.delivered = max(self.delivered, offset + 1)
        self.running.add(offset)
        attempt = self.counts.get(offset, 0) + 1
        if counted:
            self.counts[offset] = attempt
        return attempt

    def count_attempt(self, offset: int) -> None:
        """Count an attempt that started uncounted."""
        self.counts[offset] = self.counts.get(offset, 0) + 1

    def take_back(self, offset: int, *, counted: bool = True) -> None:
        """Undo the last attempt: the message was released, or the consumer stopped the attempt."""
        self.running.discard(offset)
        if not counted:
            return
        if self.counts.get(offset, 0) > 1:
            self.counts[offset] -= 1
        else:
            self.counts.pop(offset, None)

    def rest(self, offsets: Iterable[int]) -> None:
        """Mark messages as not running until their next attempt. A successor does not wait for this holder because of them."""
        self.running.difference_update(offsets)

    def fail(self, offset: int, now_ms: int) -> None:
        """Count a failed attempt."""
        known = self.failures.get(offset, Failures(0, now_ms))
        self.failures[offset] = Failures(known.attempts + 1, known.since_ms)

    def start_over(self, offset: int) -> None:
        """Reset the attempt and failure counts of a message."""
        self.counts.pop(offset, None)
        self.failures.pop(offset, None)

    def forget(self, offset: int) -> None:
        """Delete the entries of a finished message."""
        self.counts.pop(offset, None)
        self.failures.pop(offset, None)
        self.running.discard(offset)
