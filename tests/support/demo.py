"""A demo as a person runs it: a process, its children and its leftovers."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

from tests.support.checkout import ROOT

LIMIT_S: Final = 500.0
"""Seconds. The reconciliation run at the end of the demo starts Spark."""


class RunningDemo:
    """A demo in a process of its own, with every process that it was seen to start."""

    def __init__(self, program: str, folder: Path) -> None:
        self._output = folder / "output.txt"
        self._temporary = folder / "temporary"
        self._temporary.mkdir()
        with self._output.open("w") as output:
            self._process = psutil.Popen(
                [sys.executable, "-c", program],
                stdout=output,
                stderr=output,
                cwd=folder,
                env={**os.environ, "TMPDIR": str(self._temporary), "PYTHONPATH": str(ROOT)},
            )
        self._seen: set[psutil.Process] = set()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, self.output
            assert self._process.poll() is None or condition(), f"the demo has ended\n{self.output}"
            with contextlib.suppress(psutil.NoSuchProcess):
                self._seen |= set(self._process.children(recursive=True))
            time.sleep(0.02)

    def end(self) -> int:
        self.wait_for(lambda: self._process.poll() is not None)
        return int(self._process.returncode)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    @property
    def output(self) -> str:
        return self._output.read_text("utf-8")

    @property
    def left_behind(self) -> list[str]:
        processes = [
            str(process) for process in self._seen if process.is_running() and process.status() != "zombie"
        ]
        return processes + [str(path) for path in self._temporary.iterdir()]

    @property
    def started(self) -> int:
        return len(self._seen)

    def kill(self) -> None:
        for process in (*self._seen, self._process):
            if process.is_running():
                process.kill()
