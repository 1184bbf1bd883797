"""Spark's JVM as a child process that does not outlive this one, and that a signal can end at any time.

PySpark itself hides its JVM until it answers, so an early interrupt leaves the JVM running. If its folder is
deleted, such a JVM does not even end when the pipe to its parent closes.
"""

import contextlib
import errno
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from reconcile.session.spark_errors import SPARK

START_LIMIT_S: Final = 900.0  # allows for a first start, which downloads the connector
END_LIMIT_S: Final = 10.0
TERM_LIMIT_S: Final = 4.0
_POLL_S: Final = 0.05
_ASCII_ONLY: Final = frozenset({"C", "POSIX"})

_LEASH: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # 1 = PR_SET_PDEATHSIG, kept across exec; a JVM that is told so removes its files
if os.getppid() != int(sys.argv[1]):  # the parent died before the call above could take effect
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Program between fork and exec, in its own interpreter: a preexec_fn could deadlock beside threads."""


class JvmError(Exception):
    """The JVM ended, or did not answer in time."""


class Jvm:
    """JVM of Spark. Its output goes to a file, because it would bury the result on a terminal."""

    def __init__(self, conf: SparkConf, folder: Path) -> None:
        """Start the JVM, with ``folder`` as its own working directory.

        It gets its own session, so the terminal's Ctrl-C does not reach it, and one signal ends all of its
        processes.

        Raises:
            OSError: The program cannot be started.
        """
        self._log = folder / "spark.log"
        self._way = folder / "gateway"
        self._gateway: Any = None
        home: str = _find_spark_home()  # type: ignore[no-untyped-call]
        submit = Path(home).absolute() / "bin" / "spark-submit"
        if not os.access(submit, os.X_OK):
            raise FileNotFoundError(errno.ENOENT, "no such program", str(submit))
        command = [str(submit)]
        for key, value in conf.getAll():
            command += ["--conf", f"{key}={value}"]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        if sys.platform == "linux" and threading.current_thread() is threading.main_thread():
            command = [sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid()), *command]
        own = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._way)}
        if settings := os.environ.get("SPARK_CONF_DIR"):
            own["SPARK_CONF_DIR"] = str(Path(settings).absolute())
        if os.environ.get("LC_ALL") in _ASCII_ONLY:
            own["LC_ALL"] = "C.UTF-8"  # so that Java can name folders with any characters
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - arguments are our own
                command,
                cwd=folder,  # Spark 4.0 makes a folder for artifacts there
                env={**os.environ, **own},
                stdin=subprocess.PIPE,  # the JVM ends when this pipe closes
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def connect(self, waiting: Callable[[], None]) -> Any:
        """Return PySpark's gateway to the JVM, calling ``waiting`` repeatedly until the JVM answers.

        Raises:
            JvmError: The JVM ended, or did not answer in time.
        """
        deadline = time.monotonic() + START_LIMIT_S
        while not self._way.exists():  # the JVM creates this file by a rename
            if self._process.poll() is not None:
                raise JvmError(f"its JVM ended with {self._process.returncode}")
            if time.monotonic() > deadline:
                raise JvmError(f"its JVM did not answer within {START_LIMIT_S:g} s")
            waiting()
            time.sleep(_POLL_S)
        with self._way.open("rb") as file:
            port: int = read_int(file)  # type: ignore[no-untyped-call]
            secret: str = UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]
        with _environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
            self._gateway = launch_gateway()  # type: ignore[no-untyped-call] # launches none where these are set
        return self._gateway

    def said(self) -> str:
        """Return the output so far."""
        with contextlib.suppress(OSError):
            return self._log.read_text("utf-8", "replace")
        return ""

    def end(self) -> None:
        """End the JVM after Spark has stopped. By itself it would end somewhat later than this process."""
        if self._gateway is not None:
            with contextlib.suppress(*SPARK, OSError):
                self._gateway.shutdown()
        self._close_pipe()
        self._await_end(END_LIMIT_S)

    def terminate(self) -> None:
        """Send SIGTERM, without waiting."""
        self._signal(signal.SIGTERM)

    def end_now(self) -> None:
        """End the JVM in any state, and wait for its end."""
        self.terminate()
        self._close_pipe()
        self._await_end(TERM_LIMIT_S)
        # A program that a shell was just starting may have missed the signal, so kill the remaining session.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._signal(signal.SIGKILL)

    def _await_end(self, limit_s: float) -> None:
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def _close_pipe(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _signal(self, number: signal.Signals) -> None:
        """Signal the whole session, because a shell and its children run before the JVM."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


@contextlib.contextmanager
def _environment(added: dict[str, str]) -> Iterator[None]:
    """Set variables while PySpark reads them. If they stayed, later processes would assume spark-submit."""
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
