"""Log lines about failed attempts and dead letters: the first ones in full, then a summary."""

import asyncio
import logging
import traceback
from collections import Counter, deque
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from ringfence_kafka.process.log_setup import TRACE

log: Final = logging.getLogger("ringfence.consumer")

LINES_MAX: Final = 10
"""Limit of lines of one kind within :data:`WINDOW_S`. Further ones are summarised."""
WINDOW_S: Final = 10.0
RECENT_MAX: Final = 20
TEXT_MAX: Final = 2_000
"""Limit of an exception's text in a line, a trace and the header of a dead letter, in characters."""
_NOT_THE_USERS: Final = (
    str(Path(__file__).parents[1]),
    str(Path(asyncio.__file__).parent),
    str(Path(asyncio.__file__).parent.parent / "concurrent"),
)
"""Folders whose frames precede the handler's own in a trace."""


def shortened(text: str, most: int = TEXT_MAX) -> str:
    """Return the text, or its beginning and its length."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text):,} characters)"


def trace_of(error: BaseException) -> str:
    """Return the trace of a handler's exception, from the handler's own code on. Long texts are shortened."""
    whole = traceback.TracebackException(type(error), error, _of_the_handler(error.__traceback__))
    return "".join(shortened(name.rstrip("\n")) + "\n" for name in whole.format()).rstrip("\n")


def _of_the_handler(trace: TracebackType | None) -> TracebackType | None:
    """Return the trace without the frames before the handler; the whole trace if it has no others."""
    found = trace
    while found is not None and found.tb_frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        found = found.tb_next
    return trace if found is None else found


class FailedAttempt(NamedTuple):
    """A failed attempt, for the consumer's page."""

    at_ms: int
    partition: int
    offset: int
    group: bytes | None
    attempt: int
    reason: str


class FailureLog:
    """Log lines of one consumer about failed attempts."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        """Number of lines of each kind in this window, including those left out."""
        self._last: dict[str, str] = {}
        self.recent: deque[FailedAttempt] = deque(maxlen=RECENT_MAX)

    def attempt_failed(self, line: str) -> None:
        """Log a failed attempt before a retry."""
        if self._counted("attempts failed, and their messages wait for the next", line):
            log.warning("%s", line)

    def state_unread(self, line: str) -> None:
        """Log a failed reading of a group's state."""
        if self._counted("readings of states failed, and the messages of their groups wait", line):
            log.warning("%s", line)

    def dead_letter(self, line: str, error: BaseException | None) -> None:
        """Log a dead letter, with the trace of its last failure."""
        if self._counted("messages went to the dead letters (ringfence dlq list)", line):
            log.error("%s", line, extra={} if error is None else {TRACE: trace_of(error)})

    def _counted(self, kind: str, line: str) -> bool:
        if not self._counts:
            asyncio.get_running_loop().call_later(WINDOW_S, self._summarise)
        self._counts[kind] += 1
        self._last[kind] = line
        return self._counts[kind] <= LINES_MAX

    def _summarise(self) -> None:
        """Log the number of lines left out in this window, and start the next one."""
        for kind, count in self._counts.items():
            if (more := count - LINES_MAX) > 0:
                log.warning("within %g s %d more %s; the last: %s", WINDOW_S, more, kind, self._last[kind])
        self._counts.clear()
        self._last.clear()


def legible(reason: str) -> str:
    """Return a reason that fits a log line and a header. It may quote a whole message, or half a surrogate pair."""
    return shortened(reason).encode(errors="backslashreplace").decode()
