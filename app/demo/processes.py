"""Child processes of the demo, and the signals that end it. Children are ended by their process ID."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

from ringfence_kafka.config.load import ENV_PREFIX

ROOT: Final = Path(__file__).resolve().parents[2]
"""Where ``python -m app`` finds the application, installed or not."""
LOG_LINES_SHOWN: Final = 20
_POLL_S: Final = 0.05
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptedDemoError(BaseException):
    """A signal asked the demo to end; not an Exception, so that nothing on the way takes it for a fault."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Interruption:
    """Notes stop signals: an exception between the start of a child and the note of its ID would leave it behind.

    The demo calls :meth:`check` wherever it waits; :meth:`immediate` is for the wait inside another library.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._immediate = False
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for item in _STOP_SIGNALS:
            if signal.getsignal(item) is not signal.SIG_IGN:  # nohup means it
                self._former[item] = signal.signal(item, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise :class:`InterruptedDemoError` if a signal came."""
        if self._number is not None:
            raise InterruptedDemoError(self._number)

    def sleep(self, seconds: float) -> None:
        """Sleep, but not through a signal."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, _POLL_S))
        self.check()

    @contextlib.contextmanager
    def immediate(self) -> Iterator[None]:
        """Let signals raise at once, for what cleans up behind any exception."""
        self.check()
        self._immediate = True
        try:
            yield
        finally:
            self._immediate = False
        self.check()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._number = number
        if self._immediate:
            self._immediate = False  # a second signal must not cut the clean-up short
            raise InterruptedDemoError(number)


class Child:
    """A child process. In a session of its own, so that the terminal's Ctrl-C reaches the demo alone."""

    def __init__(self, arguments: list[str], log: Path | None) -> None:
        """``arguments``: of this Python interpreter; ``log``: of both output streams, None = those of the demo."""
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
        """None while it runs."""
        return self._process.poll()

    def wait(self, limit_s: float, look: Callable[[], None]) -> int | None:
        """Wait for its end, calling ``look`` meanwhile; None when it still runs after ``limit_s`` seconds."""
        deadline = time.monotonic() + limit_s
        while self.exit_code is None and time.monotonic() < deadline:
            look()
            time.sleep(_POLL_S)
        return self.exit_code

    def kill(self) -> None:
        """End it at once, as a crash would. May be repeated."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def log_tail(self) -> str:
        """The last lines that it wrote."""
        text = "" if self.log is None else self.log.read_text("utf-8", "replace")
        return "\n".join(f"  {line}" for line in text.strip().splitlines()[-LOG_LINES_SHOWN:])


class WorkerProcess(Child):
    """``ringfence worker``, or another verb that serves its health on ``web_port``."""

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
    """Without settings: one in the caller's environment could lead the demo to a real cluster."""
    inherited = {
        name: text for name, text in os.environ.items() if not (name.startswith(ENV_PREFIX) and "__" in name)
    }
    return {"RINGFENCE_CLASS_ARCHIVE": "off", **inherited}  # it takes ten seconds, for runs that do not come
