"""A command under way, with all processes that it starts: they inherit a variable that identifies them."""

import os
import subprocess
import sys
import time
import uuid
from typing import Final

import psutil

from tests.support.checkout import ROOT

LIMIT_S: Final = 400.0
END_LIMIT_S: Final = 8.0
"""Here two processors are shared; on an idle machine it takes a second."""


class Started:
    """A verb and all processes that it starts."""

    def __init__(self, *arguments: str) -> None:
        self._mark = str(uuid.uuid4())
        self.process = subprocess.Popen(
            [sys.executable, "-m", "app", *arguments],
            cwd=ROOT, env={**os.environ, "STARTED_BY": self._mark}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def others(self) -> list[psutil.Process]:
        return [
            process
            for process in psutil.process_iter(["pid"])
            if process.pid != self.process.pid and self._owns(process)
        ]

    def _owns(self, process: psutil.Process) -> bool:
        try:
            return (
                process.environ().get("STARTED_BY") == self._mark and process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.Error:
            return False

    def java(self) -> psutil.Process | None:
        for other in self.others():
            try:
                if other.name() == "java" and "org.apache.spark.deploy.SparkSubmit" in other.cmdline():
                    return other
            except psutil.Error:
                continue
        return None

    def ended(self, number: int) -> tuple[int, str, str]:
        assert self.process.poll() is None, self.process.communicate()
        begun = time.monotonic()
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=LIMIT_S)
        took = time.monotonic() - begun
        assert took < END_LIMIT_S, f"it ended after {took:.1f} s"
        return self.process.returncode, out, err

    def destroy(self) -> None:
        self.process.kill()
        self.process.wait()
        for other in self.others():
            other.kill()
