"""While a program loads, and how it ends when it was interrupted. Nothing but the standard library: it comes first."""

import atexit
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

EXIT_INTERRUPTED: Final = 130
"""As a shell reports SIGINT."""

_interrupted = False


@contextmanager
def quiet_interrupt() -> Iterator[None]:
    """Who interrupts a program while it loads wants its end, and no trace. An ignored SIGINT stays ignored."""
    heeded = signal.getsignal(signal.SIGINT) == signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    yield
    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def quiet_end() -> Iterator[None]:
    """What is done has its exit code, whoever interrupts the program in the moment until it is gone."""
    try:
        yield
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
            signal.signal(signal.SIGINT, lambda *_: os._exit(code))
        raise


def interrupted() -> int:
    """The exit code of a program whose interrupt was caught; it is kept, see :func:`_leave`."""
    global _interrupted  # noqa: PLW0603 - what the interpreter does at its end is as global
    _interrupted = True
    return EXIT_INTERRUPTED


@atexit.register  # before all others, so that it runs after them
def _leave() -> None:
    """End with the exit code in spite of the interpreter.

    CPython remembers that a KeyboardInterrupt left code which an extension ran (``run_eval_code_obj``), forgets
    it never, although it was caught further out, and then ends by the signal instead of with the code. And while it
    takes its modules apart, it has taken every handler away that is Python's: an interrupt would kill it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if _interrupted:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(EXIT_INTERRUPTED)
