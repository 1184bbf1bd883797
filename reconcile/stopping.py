"""Ctrl-C, SIGTERM and a closed terminal end a run soon, at whatever moment, with nothing left behind.

The signal first ends what the run has started, Spark's JVM, so that nobody waits for its answers; then it unwinds the run as
an exception. An exception may get lost on the way, in a finalizer or in foreign code that catches everything, and code outside
of Python does not hear it at all. So a thread watches over the end, and forces it.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
END_LIMIT_S: Final = 6.0
"""An end in order takes less: a JVM that is told to end takes one or two seconds."""
_LOOK_EVERY_S: Final = 0.1
_SHOW_CURSOR: Final = "\x1b[?25h"


class StoppedError(BaseException):
    """A signal asked the run to end; not an Exception, so that nothing on the way takes it for a fault."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code: Final = 128 + number
        """As a shell has it: 130 after Ctrl-C, 143 after SIGTERM."""


class Stop:
    """What a signal ends. One run has one."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The signal that came."""
        self._heeded: tuple[signal.Signals, ...] = ()
        self._held = False
        self._ends: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def ends(self, softly: Callable[[], None], surely: Callable[[], None]) -> None:
        """Have a signal end something.

        Args:
            softly: Called at once; does not wait.
            surely: Called where the run has not ended :data:`END_LIMIT_S` later.
        """
        self._ends.append((softly, surely))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """What must be finished once it is begun, and takes a moment: a signal is heeded at its end."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self.number is not None:
            self._stop(self.number)

    def heed(self, signals: Iterable[signal.Signals]) -> None:
        """Listen to these from now on."""
        self._heeded = tuple(signals)
        self.heed_again()

    def heed_again(self) -> None:
        """After foreign code that sets handlers of its own: PySpark asks the JVM from within its handler, and may wait for ever.

        What our starter ignores (nohup) is ignored again too.
        """
        if self._heeded and self.number is None:
            for each in SIGNALS:
                signal.signal(each, self._come if each in self._heeded else signal.SIG_IGN)

    def _come(self, number: int, _frame: FrameType | None) -> None:
        """A signal has come; whatever comes after it is ignored, as the end is under way."""
        for each in SIGNALS:
            # SIG_IGN would have the interpreter complain of one that has come together with this one.
            signal.signal(each, _pass_over)
        self.number = number
        if not self._held:
            self._stop(number)

    def _stop(self, number: int) -> None:
        for softly, _ in self._ends:
            softly()
        raise StoppedError(number)

    def force(self, number: int) -> None:
        """The run does not end by itself."""
        for _, surely in self._ends:
            surely()
        if sys.stderr.isatty():
            sys.stderr.write(_SHOW_CURSOR)
        os._exit(128 + number)


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """While it lasts, signals raise :class:`StoppedError` in the main thread, save those that our starter ignores (nohup).

    Whatever goes wrong after a signal is its consequence, and is StoppedError too. In other threads nothing is heeded: signals
    are none of theirs.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {each: signal.getsignal(each) for each in SIGNALS}
    heeded = [each for each in SIGNALS if before[each] != signal.SIG_IGN]
    try:
        with _watched(stop, heeded):
            stop.heed(heeded)
            yield stop
    except Exception:
        if stop.number is None:
            raise
        raise StoppedError(stop.number) from None
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _pass_over(_number: int, _frame: FrameType | None) -> None:
    """For a signal that changes nothing any more."""


@contextlib.contextmanager
def _watched(stop: Stop, heeded: list[signal.Signals]) -> Iterator[None]:
    """See that a signal is noticed, and force the end where the block is not left in time."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    left = threading.Event()
    main = threading.main_thread().ident or 0

    def watch() -> None:
        # The interpreter writes a signal's number as it comes, also while the main thread is in code that is not Python's.
        while (came := os.read(reading, 1)) and came[0] not in heeded:
            pass
        if not came:
            return
        forced_at = time.monotonic() + END_LIMIT_S
        while not left.wait(_LOOK_EVERY_S):
            if time.monotonic() > forced_at:
                stop.force(came[0])
            if stop.number is None:
                # Where it came just before the main thread began to wait, or to another thread, nothing has ended that wait.
                signal.pthread_kill(main, came[0])

    watcher = threading.Thread(target=watch, name="stopping", daemon=True)
    watcher.start()
    previous = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        left.set()
        signal.set_wakeup_fd(previous)
        os.close(writing)
        watcher.join()
        os.close(reading)
