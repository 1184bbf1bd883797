"""While a program loads. Nothing but the standard library, so that it comes before all that is loaded."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

EXIT_INTERRUPTED: Final = 130
"""As a shell reports SIGINT."""


@contextmanager
def quiet_interrupt() -> Iterator[None]:
    """Who interrupts a program while it loads wants its end, and no trace. An ignored SIGINT stays ignored."""
    heeded = signal.getsignal(signal.SIGINT) == signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    yield
    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
