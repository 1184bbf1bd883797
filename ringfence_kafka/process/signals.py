"""How a long-running process is told to end."""

import asyncio
import signal
from collections.abc import Callable


def ends_at_hang_up() -> bool:
    """Whether this process is to end in order when its terminal is gone: not where ``nohup`` ignores that."""
    return signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def when_told_to_end(stop: Callable[[], object]) -> None:
    """Have the running loop call ``stop`` at SIGTERM, SIGINT and SIGHUP."""
    for signals in (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if ends_at_hang_up() else [])):
        asyncio.get_running_loop().add_signal_handler(signals, stop)
