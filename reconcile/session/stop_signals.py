"""Handles Ctrl-C, SIGTERM and a closed terminal: the first signal ends a run in order, the second at once.

The first signal ends Spark's JVM, so that no call waits for its answers. Then it unwinds the run as an
exception.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOW_CURSOR: Final = "\x1b[?25h"


class StoppedError(BaseException):
    """A signal ended the run. It is not an Exception, so no handler takes it for a problem."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code: Final = 128 + number  # exit code of a shell: 130 after Ctrl-C, 143 after SIGTERM


class Stop:
    """State of one run's end by signals."""

    def __init__(self, heeded: Collection[signal.Signals] = ()) -> None:
        self.number: int | None = None  # first signal that came
        self._heeded = heeded
        self._held = False
        self._ends: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def ends(self, softly: Callable[[], None], surely: Callable[[], None]) -> None:
        """End work of the run ``softly`` at the first signal, without a wait, and ``surely`` at the second."""
        self._ends.append((softly, surely))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Defer signals to the end of the block, which must be short."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self.number is not None:
            self._stop(self.number)

    def install(self) -> None:
        """Set the handlers, again after PySpark has replaced them: its own asks the JVM and may wait forever.

        Signals that the parent of this process ignores (nohup) stay ignored.
        """
        if self._heeded and self.number is None:
            for item in SIGNALS:
                signal.signal(item, self._come if item in self._heeded else signal.SIG_IGN)

    def _come(self, number: int, _frame: FrameType | None) -> None:
        first, self.number = self.number is None, self.number or number
        if self._held:
            return
        if first:
            self._stop(number)
        for _, surely in self._ends:
            surely()
        if sys.stderr.isatty():
            sys.stderr.write(_SHOW_CURSOR)
        os._exit(128 + number)

    def _stop(self, number: int) -> None:
        for softly, _ in self._ends:
            softly()
        raise StoppedError(number)


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """Let signals raise :class:`StoppedError` in the main thread, except signals that nohup ignores.

    An exception after a signal is its consequence, and becomes StoppedError too. In other threads signals
    change nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Stop()
        return
    before = {item: signal.getsignal(item) for item in SIGNALS}
    stop = Stop([item for item in SIGNALS if before[item] != signal.SIG_IGN])
    try:
        stop.install()
        yield stop
    except Exception:
        if stop.number is None:
            raise
        raise StoppedError(stop.number) from None
    finally:
        for signals, handler in before.items():
            signal.signal(signals, handler)
