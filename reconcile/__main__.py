"""``python -m reconcile``."""

import os
import signal
import sys

EXIT_INTERRUPTED = 130


def main() -> int:
    """Load the job, and run it. Who interrupts it while it loads wants its end, and no trace."""
    heeded = signal.getsignal(signal.SIGINT) == signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    from reconcile.job import main as run  # noqa: PLC0415

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()


if __name__ == "__main__":
    sys.exit(main())
