"""Ringfence's command line, saying how long each callback kept an event loop: run as the text of ``python -c``, with the verb behind it.

So it measures any version of the project, from whose root it is run. Imports nothing of the benchmark for that reason.
"""

import asyncio
import sys
import threading
import time
import traceback
from typing import Any, Final

HOLD: Final = "held the loop of "
LEAST_S: Final = 0.02
"""Shorter holds are not told."""
LOOK_EVERY_S: Final = 0.01
WHERE_S: Final = 0.05
"""Of holds that last longer it is told what ran then."""
FRAMES: Final = 3


def tell_holds() -> None:
    """Have each event loop of this process say, on standard output, what kept it for long."""
    handles: Any = asyncio.Handle
    run = handles._run  # noqa: SLF001 - every callback goes through it

    running: dict[int, float] = {}
    where: dict[int, str] = {}

    def look() -> None:
        while True:
            time.sleep(LOOK_EVERY_S)
            for thread, since in list(running.items()):
                frame = sys._current_frames().get(thread)  # noqa: SLF001 - as debuggers do
                if frame is not None and time.perf_counter() - since >= WHERE_S and thread not in where:
                    frames = traceback.extract_stack(frame)[-FRAMES:]
                    where[thread] = ", ".join(f"{each.name}:{each.lineno}" for each in frames)

    def timed(handle: asyncio.Handle) -> None:
        thread = threading.get_ident()
        began, cpu_began = running.setdefault(thread, time.perf_counter()), time.thread_time()
        run(handle)
        del running[thread]
        held = time.perf_counter() - began
        at = where.pop(thread, "")
        if held >= LEAST_S:
            cpu = time.thread_time() - cpu_began
            print(
                f"{time.time():.3f} {held:.3f} {cpu:.3f} {HOLD}{threading.current_thread().name}: {handle!r} {at}",
                flush=True,
            )

    threading.Thread(target=look, daemon=True).start()
    handles._run = timed  # noqa: SLF001


if __name__ == "__main__":
    from app.cli import main

    tell_holds()
    main(sys.argv[1:])
