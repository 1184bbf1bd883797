"""Child processes of the demo, which are ended by process ID."""

import contextlib
import http.client
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ringfence_kafka.config.load import ENV_PREFIX

ROOT: Final = Path(__file__).resolve().parents[2]
"""Folder in which ``python -m app`` finds the application, installed or not."""
LOG_LINES_SHOWN: Final = 20
_POLL_S: Final = 0.05


class Child:
    """Child process in its own session, so that the terminal's Ctrl-C reaches only the demo."""

    def __init__(self, arguments: list[str], log: Path | None) -> None:
        """Start Python with ``arguments``. ``log``: file for both outputs; None = the demo's streams."""
        self.log = log
        with contextlib.ExitStack() as stack:
            output = None if log is None else stack.enter_context(log.open("wb"))
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process; None while it runs."""
        return self._process.poll()

    def wait(self, limit_s: float, look: Callable[[], None]) -> int | None:
        """Wait up to ``limit_s`` seconds for its end, calling ``look`` repeatedly; None = it still runs."""
        deadline = time.monotonic() + limit_s
        while self.exit_code is None and time.monotonic() < deadline:
            look()
            time.sleep(_POLL_S)
        return self.exit_code

    def kill(self) -> None:
        """Kill the process, like a crash. Idempotent."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def log_tail(self) -> str:
        """Return the last lines of its output."""
        text = "" if self.log is None else self.log.read_text("utf-8", "replace")
        return "\n".join(f"  {line}" for line in text.strip().splitlines()[-LOG_LINES_SHOWN:])


class WorkerProcess(Child):
    """``ringfence worker``, or another command that serves its health on ``web_port``."""

    def __init__(self, config: Path, web_port: int, log: Path, verb: str = "worker") -> None:
        super().__init__(["-m", "app", verb, "--config", str(config), "--web-port", str(web_port)], log)
        self._web_port = web_port

    @property
    def ready(self) -> bool:
        """Whether ``/health`` answers 200 now."""
        connection = http.client.HTTPConnection("127.0.0.1", self._web_port, timeout=1)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def _environment() -> dict[str, str]:
    """Return the environment without settings, which could lead the demo to a real cluster."""
    inherited = {
        name: text for name, text in os.environ.items() if not (name.startswith(ENV_PREFIX) and "__" in name)
    }
    return {"RINGFENCE_CLASS_ARCHIVE": "off", **inherited}  # making one takes ten seconds
