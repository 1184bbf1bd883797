"""Progress of a command whose stderr is not a terminal: one line for each step, and more lines for a long one."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from ringfence_kafka.escaping import printable
from ringfence_kafka.readers.read_counts import observed
from ringfence_kafka.wording import counted

FIRST_S: Final = 10.0
"""Time after which a step reports that it still runs, in seconds; it repeats at growing intervals."""
INTERVAL_S_MAX: Final = 60.0
BRIEF_S: Final = 2.0
"""Shortest step that a read-only command reports, in seconds."""
_LOOK_EVERY_S: Final = 0.5
_JOIN_LIMIT_S: Final = 1.0
_TENTHS_BELOW_S: Final = 10.0


class Progress(Protocol):
    """Interface through which a command reports its steps."""

    def start_step(self, name: str) -> None:
        """End the previous step, and start this one."""

    def count(self, counts: str | Callable[[], str]) -> None:
        """Replace the counts of the current step."""


class Steps:
    """Steps of one command. Another thread reports long ones while they run."""

    def __init__(
        self,
        write: Callable[[str], object] | None,
        *,
        brief_s: float = 0.0,
        so_far: Callable[[], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the reports, without a current step.

        Args:
            write: Writes a line; None = no lines, because a person watches the terminal.
            brief_s: Shorter steps, in seconds, have no line.
            so_far: Returns the progress of a step without counts.
            clock: Clock, in seconds.
        """
        self._write = write
        self._brief_s = brief_s
        self._so_far = so_far
        self._clock = clock
        self._lock = threading.Lock()
        self._name = ""
        self._counts: str | Callable[[], str] = ""
        self.records = 0
        """Number of records that the current step has read."""
        self._began = self._next = 0.0

    def say(self, line: str) -> None:
        """Print a line that belongs to no step."""
        if self._write is not None:
            self._write(line)

    def start_step(self, name: str) -> None:
        """End the previous step, and start this one."""
        self.end()
        with self._lock:
            self._name, self._counts, self.records = name, "", 0
            self._began = self._clock()
            self._next = self._began + FIRST_S

    def count(self, counts: str | Callable[[], str]) -> None:
        """Replace the counts of the current step: ``300,000 messages``, or a function that returns such a text."""
        self._counts = counts

    def add_records(self, records: int) -> None:
        """Add to the records that the current step has read."""
        self.records += records

    def end(self) -> None:
        """Report counts and duration of the current step, if there is one."""
        with self._lock:
            name, self._name = self._name, ""
            took = self._clock() - self._began
        if name and took >= self._brief_s:
            self.say(_line(name, self._known(), seconds(took)))

    def report_due(self) -> None:
        """Report a step that still runs, if a report is due."""
        now = self._clock()
        name = self._name
        if not name or now < self._next:
            return
        counts = self._known() or (self._so_far() if self._so_far is not None else "")
        with self._lock:
            if name != self._name:
                return
            took = now - self._began
            self._next = now + min(max(took, FIRST_S), INTERVAL_S_MAX)
            self.say(_line(name, counts, f"{seconds(took)} so far"))

    def _known(self) -> str:
        if callable(self._counts):
            return self._counts()
        return self._counts or (counted(self.records, "record") if self.records else "")


def _line(name: str, counts: str, took: str) -> str:
    return f"{name}: {counts}, {took}" if counts else f"{name}: {took}"


def seconds(duration: float) -> str:
    """Return a duration as text for a line."""
    return f"{duration:.1f} s" if duration < _TENTHS_BELOW_S else f"{duration:,.0f} s"


def watched() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextlib.contextmanager
def steps(*, brief_s: float = 0.0, so_far: Callable[[], str] | None = None) -> Iterator[Steps]:
    """Yield the steps of a command: lines on stderr, or nothing on a terminal. See :class:`Steps` for the arguments.

    A step that an exception ends has no line, because the error says what happened.
    """
    if watched():
        yield Steps(None)
        return
    found = Steps(_print, brief_s=brief_s, so_far=so_far)
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            found.report_due()

    looking = threading.Thread(target=look, name="progress", daemon=True)
    looking.start()
    try:
        yield found
        found.end()
    finally:
        ended.set()
        looking.join(_JOIN_LIMIT_S)


@contextlib.contextmanager
def reading(what: str, *, brief_s: float = BRIEF_S) -> Iterator[Steps]:
    """Yield one step that reads logs, with the number of records, for commands that do little else."""
    with steps(brief_s=brief_s) as found, observed(found.add_records):
        found.start_step(f"reading {what}")
        yield found


def _print(line: str) -> None:
    """Print a line. A closed standard error does not stop the command."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{printable(line)}\n")
        sys.stderr.flush()
