"""Ringfence's command line, saying how long each callback kept an event loop: run as the text of ``python -c``, with the verb behind it.

So it measures any version of the project, from whose root it is run. Imports nothing of the benchmark for that reason.
"""

import asyncio
import sys
import threading
import time
from typing import Any, Final

HOLD: Final = "held the loop of "
LEAST_S: Final = 0.02
"""Shorter holds are not told."""


def tell_holds() -> None:
    """Have each event loop of this process say, on standard output, what kept it for long."""
    handles: Any = asyncio.Handle
    run = handles._run  # noqa: SLF001 - every callback goes through it

    def timed(handle: asyncio.Handle) -> None:
        began, cpu_began = time.perf_counter(), time.thread_time()
        run(handle)
        held = time.perf_counter() - began
        if held >= LEAST_S:
            cpu = time.thread_time() - cpu_began
            print(
                f"{time.time():.3f} {held:.3f} {cpu:.3f} {HOLD}{threading.current_thread().name}: {handle!r}",
                flush=True,
            )

    handles._run = timed  # noqa: SLF001


if __name__ == "__main__":
    from app.cli import main

    tell_holds()
    main(sys.argv[1:])
