"""Log lines about failed attempts and dead letters: each of the first ones, and then a summary."""

import asyncio
import logging
import traceback
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from ringfence_kafka.process.log_setup import TRACE

log: Final = logging.getLogger("ringfence.consumer")

LINES_MAX: Final = 10
"""Lines of one kind within :data:`WINDOW_S`; more are summarised."""
WINDOW_S: Final = 10.0
RECENT_MAX: Final = 20
TEXT_MAX: Final = 2_000
"""Characters of what an exception says, in a line, a trace and the header of a dead letter."""
_NOT_THE_USERS: Final = (
    str(Path(__file__).parents[1]),
    str(Path(asyncio.__file__).parent),
    str(Path(asyncio.__file__).parent.parent / "concurrent"),
)
"""Folders whose frames stand before the handler's own in a trace."""


def shortened(text: str, most: int = TEXT_MAX) -> str:
    """Return the text, or its beginning and how long it is."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text):,} characters)"


def trace_of(error: BaseException) -> str:
    """Return the trace of what a handler raised, from the handler's own code on; long texts are shortened."""
    whole = traceback.TracebackException(type(error), error, _of_the_handler(error.__traceback__))
    return "".join(shortened(name.rstrip("\n")) + "\n" for name in whole.format()).rstrip("\n")


def _of_the_handler(trace: TracebackType | None) -> TracebackType | None:
    """Return the trace without the frames of who called the handler; the whole one if it has no others."""
    found = trace
    while found is not None and found.tb_frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        found = found.tb_next
    return trace if found is None else found


class FailedAttempt(NamedTuple):
    """An attempt that failed, for the consumer's page."""

    at_ms: int
    partition: int
    offset: int
    group: bytes | None
    attempt: int
    reason: str


class FailureLog:
    """Log lines of one consumer about failed attempts."""

    def __init__(self, later: Callable[[float, Callable[[], None]], object] | None = None) -> None:
        """``later``: calls a function after so many seconds; None = the running loop does."""
        self._later = later
        self._counts: Counter[str] = Counter()
        """Lines of each kind in this window, written or not."""
        self._last: dict[str, str] = {}
        self.recent: deque[FailedAttempt] = deque(maxlen=RECENT_MAX)
        """The last failed attempts, the newest last."""

    def attempt_failed(self, line: str) -> None:
        """Log a failed attempt that is followed by another one."""
        if self._counted("attempts failed, and their messages wait for the next", line):
            log.warning("%s", line)

    def state_unread(self, line: str) -> None:
        """Log that the state of a group cannot be read now."""
        if self._counted("readings of states failed, and the messages of their groups wait", line):
            log.warning("%s", line)

    def dead_letter(self, line: str, error: BaseException | None) -> None:
        """Log a dead letter, with the trace of its last failure."""
        if self._counted("messages went to the dead letters (ringfence dlq list)", line):
            log.error("%s", line, extra={} if error is None else {TRACE: trace_of(error)})

    def _counted(self, kind: str, line: str) -> bool:
        """Count a line; return whether it is written."""
        if not self._counts:
            later = self._later or asyncio.get_running_loop().call_later
            later(WINDOW_S, self._summarise)
        self._counts[kind] += 1
        self._last[kind] = line
        return self._counts[kind] <= LINES_MAX

    def _summarise(self) -> None:
        """Say how many lines of this window were left out, and begin the next one."""
        for kind, count in self._counts.items():
            if (more := count - LINES_MAX) > 0:
                log.warning("within %g s %d more %s; the last: %s", WINDOW_S, more, kind, self._last[kind])
        self._counts.clear()
        self._last.clear()


def legible(reason: str) -> str:
    """Return a reason as a log and a header can hold it. It may quote all of a message, or half a surrogate pair."""
    return shortened(reason).encode(errors="backslashreplace").decode()
