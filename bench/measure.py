"""Cost of a process: CPU and memory, of itself and its children."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bench.errors import BenchError

ROOT: Final = Path(__file__).resolve().parent.parent
REPORT: Final = b"finished "
"""How a contender says that it has finished so many messages."""
STOP_LIMIT_S: Final = 60.0
_LINES_SHOWN: Final = 15


@dataclass(frozen=True, slots=True)
class Reading:
    """A process and its descendants at one moment."""

    moment_s: float
    """By the monotonic clock."""
    cpu_s: float
    """User and system time since the process began."""
    peak_rss_bytes: int
    """Sum of each process's own peak."""


def cpu_s(pids: Iterable[int]) -> float:
    """User and system time of processes and their descendants, together."""
    return sum(read(pid).cpu_s for pid in pids)


def read(pid: int) -> Reading:
    """Read it now.

    Raises:
        BenchError: the process is gone.
    """
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        raise BenchError(f"process {pid} has ended") from None
    cpu = rss = 0.0
    for item in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = item.cpu_times()
            # The last two: descendants that have ended and were waited for.
            cpu += times.user + times.system + times.children_user + times.children_system
            rss += _peak_rss(item)
    return Reading(time.monotonic(), cpu, int(rss))


def _peak_rss(process: psutil.Process) -> int:
    """VmHWM, the kernel's own high-water mark; where there is none, the present size.

    Not ``ru_maxrss``: across fork and exec it keeps the size of the parent.
    """
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text("ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return int(process.memory_info().rss)


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment without settings of Ringfence: they would lead the worker to another cluster."""
    return {
        name: value for name, value in environ.items() if not (name.startswith("RINGFENCE_") and "__" in name)
    }


class Child:
    """A contender's process."""

    def __init__(
        self, command: Sequence[str], log: Path, folder: Path = ROOT, environ: Mapping[str, str] | None = None
    ) -> None:
        """``folder`` is where it runs: the root of the project, or of another version of it; ``environ`` is added to its environment."""
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment() | dict(environ or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def read(self) -> Reading:
        """Its cost until now.

        Raises:
            BenchError: it has ended; the text has the last lines that it wrote.
        """
        if self._process.poll() is not None:
            raise BenchError(f"ended by itself with {self._process.returncode}:\n{self.tail()}")
        return read(self._process.pid)

    def rss_bytes(self) -> int:
        """Resident memory now."""
        return int(psutil.Process(self._process.pid).memory_info().rss)

    def files(self) -> int:
        """How many it has open now, sockets included."""
        return int(psutil.Process(self._process.pid).num_fds())

    def reported(self) -> int:
        """Return the number in the last line that begins with :data:`REPORT`; 0 while there is none."""
        for line in reversed(self._log.read_bytes().splitlines(keepends=True)):
            if line.startswith(REPORT) and line.endswith(b"\n"):
                return int(line.removeprefix(REPORT))
        return 0

    def stop(self) -> float:
        """End it in order; return the CPU seconds of its whole life, start and end included.

        Raises:
            BenchError: it did not end in time and was killed, or ended badly.
        """
        self._process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_LIMIT_S
        while True:
            pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                self.kill()
                raise BenchError(f"was still there {STOP_LIMIT_S:.0f} s after SIGTERM:\n{self.tail()}")
            time.sleep(0.05)
        self._process.returncode = os.waitstatus_to_exitcode(status)  # Popen could not see it any more
        if self._process.returncode not in (0, -signal.SIGTERM, 128 + signal.SIGTERM):
            raise BenchError(f"ended with {self._process.returncode} after SIGTERM:\n{self.tail()}")
        return usage.ru_utime + usage.ru_stime

    def kill(self) -> None:
        """End it at once. May be repeated."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def tail(self) -> str:
        """Return the last lines that it wrote."""
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_LINES_SHOWN:])


@contextlib.contextmanager
def child(
    command: Sequence[str], log: Path, folder: Path = ROOT, environ: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """Run a process that is gone at the end of the block, whatever happens in it."""
    process = Child(command, log, folder, environ)
    try:
        yield process
    finally:
        process.kill()
