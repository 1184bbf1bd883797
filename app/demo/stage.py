"""Common machinery of the demos: a folder, child processes, and signals that end all of them."""

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.demo.display import Display
from app.demo.processes import Child, WorkerProcess
from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.process.signals import InterruptedBySignalError, Interruption

READY_LIMIT_S: Final = 90.0
"""Time limit to open a worker's lanes: after a crash, the group waits for the dead worker's session."""
STOP_LIMIT_S: Final = 30.0
CHECK_LIMIT_S: Final = 300.0
_LOOK_EVERY_S: Final = 0.25


class DemoError(RingfenceError):
    """The demo ended without a result."""


@dataclass(frozen=True)
class Stage:
    """Folder, display and processes of a demo. ``stack`` ends everything that it starts, in reverse order."""

    directory: Path
    display: Display
    interruption: Interruption
    stack: contextlib.ExitStack

    def start_broker(self, broker: EmbeddedBroker) -> None:
        """Start a broker. A signal ends the start at once."""
        self.stack.callback(broker.stop)
        with self.interruption.immediate():
            broker.start()

    def create_topics(self, config: Path) -> None:
        """Run ``ringfence topics create``."""
        arguments = ["-m", "app", "topics", "create", "--config", str(config)]
        child = self.start(arguments, config.with_name("topics.log"))
        if child.wait(READY_LIMIT_S, self.interruption.check) != 0:
            raise DemoError(f"the topics were not created: fix what is named here\n{log_of(child)}")

    def start_worker(self, config: Path, web_port: int, log: Path, verb: str = "worker") -> WorkerProcess:
        """Start a worker, or another command that serves its health."""
        worker = WorkerProcess(config, web_port, log, verb)
        self.stack.callback(worker.kill)
        return worker

    def start(self, arguments: list[str], log: Path | None) -> Child:
        """Start a Python process."""
        child = Child(arguments, log)
        self.stack.callback(child.kill)
        return child

    def becomes_ready(self, worker: WorkerProcess) -> bool:
        """Wait until a worker is ready; False = it ended, or the time is over."""
        deadline = time.monotonic() + READY_LIMIT_S
        while not worker.ready:
            if worker.exit_code is not None or time.monotonic() > deadline:
                return False
            self.interruption.sleep(_LOOK_EVERY_S)
        return True

    def run(self, arguments: list[str], name: str, limit_s: float, log: Path | None = None) -> int:
        """Run a Python module to its end. See :func:`ended`."""
        child = self.start(["-m", *arguments], log)
        return ended(child, name, limit_s, self.interruption.check)

    def stop(self, child: Child) -> int | None:
        """Stop a process by SIGTERM; return its exit code, or None if it did not end in time."""
        child.terminate()
        code = child.wait(STOP_LIMIT_S, self.interruption.check)
        child.kill()
        return code


def play(prefix: str, keep: bool, total: int, scene: Callable[[Stage], int]) -> int:
    """Play a demo in a new folder, which is kept after a failure, or with ``keep``; return its exit code.

    ``total``: number of messages that the display expects. 128 + the signal's number = interrupted.
    """
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    evidence = True
    try:
        with Interruption() as interruption, Display(total) as display, contextlib.ExitStack() as stack:
            code = scene(Stage(directory, display, interruption, stack))
        evidence = code != 0
        return code
    except InterruptedBySignalError as interrupted:
        evidence = False
        sys.stderr.write("interrupted: what was started is ended, nothing was judged\n")
        return 128 + interrupted.number
    finally:
        if keep or evidence:
            sys.stderr.write(f"configuration, logs and data are in {directory}\n")
        else:
            shutil.rmtree(directory, ignore_errors=True)


def ended(child: Child, name: str, limit_s: float, look: Callable[[], None]) -> int:
    """Wait for a program, calling ``look`` repeatedly; return its exit code, 0 or more.

    Raises:
        DemoError: It did not end within ``limit_s`` seconds, or a signal ended it, so its result is unknown.
    """
    code = child.wait(limit_s, look)
    if code is None:
        raise DemoError(f"the {name} did not end within {limit_s:g} s: run it on a machine that is less busy")
    if code < 0:
        reason = f"signal {-code} ended the {name}: look whether memory ran out, and run it again"
        raise DemoError("\n".join(filter(None, (reason, child.log_tail()))))
    return code


def log_of(child: Child) -> str:
    """Return the last lines of a log, and its path."""
    return f"{child.log_tail()}\n  (all of it: {child.log})"
