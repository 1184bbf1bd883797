"""Signals that end a process."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, Self

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_S: Final = 0.05


def ends_at_hang_up() -> bool:
    """Return whether closing the terminal ends this process orderly; False under ``nohup``."""
    return signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def on_termination(stop: Callable[[], object]) -> None:
    """Let the running loop call ``stop`` at SIGTERM, SIGINT and SIGHUP."""
    for signals in (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if ends_at_hang_up() else [])):
        asyncio.get_running_loop().add_signal_handler(signals, stop)


class InterruptedBySignalError(BaseException):
    """A signal asked the program to end. It is not an Exception, so that no error handler catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Interruption:
    """Records stop signals: an exception between the start of a child and the storing of its ID would leave the child behind.

    A program calls :meth:`check` wherever it waits; :meth:`immediate` is for a wait inside another library.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._immediate = False
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                self._former[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise :class:`InterruptedBySignalError` if a signal has arrived."""
        if self._number is not None:
            raise InterruptedBySignalError(self._number)

    def sleep(self, seconds: float) -> None:
        """Sleep until the time is over or a signal arrives."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, _POLL_S))
        self.check()

    @contextlib.contextmanager
    def immediate(self) -> Iterator[None]:
        """Let the first signal raise at once; later ones do not interrupt the clean-up."""
        self.check()
        self._immediate = True
        try:
            yield
        finally:
            self._immediate = False
        self.check()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._number = number
        if self._immediate:
            self._immediate = False
            raise InterruptedBySignalError(number)
