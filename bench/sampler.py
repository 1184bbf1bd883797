"""A sampling profiler of all Python threads of this process.

It charges each thread's CPU clock, not the time that passes, to where the thread is: one that waits for the
interpreter lock costs nothing. A tracing profiler would make each small call dearer and so shift the shares.
"""

import gc
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from bench.areas import BUILD, COLLECT, CORE, NATIVE, Frame, area_of

INTERVAL_S: Final = 0.002
SWITCH_INTERVAL_S: Final = 0.0005
"""Python's own 5 ms would let the sampler in mainly where threads give way of themselves: at sockets."""


class Sampler(threading.Thread):
    """Runs until the process ends. Counts from the first batch that is decided or built: start-up is not the work."""

    def __init__(self) -> None:
        super().__init__(name="sampler", daemon=True)
        self._areas: defaultdict[str, float] = defaultdict(float)
        self._functions: defaultdict[str, float] = defaultdict(float)
        self._clocks: dict[int, float] = {}
        self._collecting: defaultdict[int, float] = defaultdict(float)
        """Thread → CPU seconds of collections since its last sample."""
        self._collection_began_s: float = 0
        self._began_cpu_s: float | None = None
        """Of the process without this thread."""

    def run(self) -> None:
        """Sample."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        gc.callbacks.append(self._collection)
        while True:
            time.sleep(INTERVAL_S)
            self._sample()

    def save(self, path: Path) -> None:
        """Write what was found: CPU seconds by area and by innermost function."""
        areas = dict(self._areas)
        if self._began_cpu_s is not None:
            own = self._clocks.get(self.ident or 0, 0.0)
            elsewhere = time.process_time() - own - self._began_cpu_s - sum(areas.values())
            areas[NATIVE] = max(elsewhere, 0.0)
        path.write_text(json.dumps({"areas": areas, "functions": self._functions}), "utf-8")

    def _collection(self, phase: str, _: dict[str, int]) -> None:
        """Python calls it before and after each collection, in the thread that runs it."""
        if phase == "start":
            self._collection_began_s = time.thread_time()
        else:
            self._collecting[threading.get_ident()] += time.thread_time() - self._collection_began_s

    def _sample(self) -> None:
        own = threading.get_ident()
        for thread, frame in sys._current_frames().items():  # noqa: SLF001 - the one way to see other threads
            if frame.f_code is Sampler._collection.__code__:
                continue  # its account is not settled: the next sample charges for both
            # Safe while we hold the interpreter lock: a thread that has a frame has not ended.
            now = time.clock_gettime(time.pthread_getcpuclockid(thread))
            collecting = self._collecting.pop(thread, 0.0)
            spent = now - self._clocks.get(thread, now) - collecting
            self._clocks[thread] = now
            if thread == own:
                continue
            area = area_of(_stack(frame))
            if self._began_cpu_s is None:
                if area not in (BUILD, CORE):
                    continue
                self._began_cpu_s = time.process_time() - time.thread_time()
            self._areas[area] += spent
            self._areas[COLLECT] += collecting
            self._functions[_label(frame)] += spent


def _stack(frame: FrameType | None) -> Iterator[Frame]:
    while frame is not None:
        yield Frame(frame.f_code.co_filename, frame.f_code.co_qualname)
        frame = frame.f_back


def _label(frame: FrameType) -> str:
    """Of the innermost frame that stands in a file: named tuples and data classes are made of nameless code."""
    while frame.f_code.co_filename.startswith("<") and frame.f_back is not None:
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    return f"{path.parent.name}/{path.name}: {frame.f_code.co_qualname}"
