"""The ``ringfence`` program, also ``python -m app``."""

import os
import signal
from typing import NoReturn

EXIT_INTERRUPTED = 130


def main() -> NoReturn:
    """Load the command line, and run it. Who interrupts it while it loads wants its end, and no trace."""
    heeded = signal.getsignal(signal.SIGINT) == signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    from app.cli import main as run  # noqa: PLC0415

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
