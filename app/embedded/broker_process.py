"""Java process of a Kafka broker. Its folder keeps files, ports and data over restarts."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from app.embedded import classes, jars, ports, server_files
from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.process import java

HOST: Final = "127.0.0.1"

# With only the first compiler tier, a start takes half the CPU. A million records cost 1.3 CPU seconds
# against 2.9 with all tiers, or 4.2 with G1.
JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError")
_LEASH: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 = PR_SET_PDEATHSIG, kept across exec
if os.getppid() != int(sys.argv[1]):  # the parent died before the call above could take effect
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Program between fork and exec, in its own interpreter: a preexec_fn could deadlock beside threads."""


class BrokerProcess:
    """Starts, stops and disturbs the process; start on the main thread, else it outlives this process."""

    def __init__(self, directory: Path, port: int = 0) -> None:
        """Choose the ports. ``port``: port for clients; 0 = a free one."""
        self.directory: Final = directory.absolute()
        self.port: Final = port or ports.choose(HOST)
        self.controller_port: Final = ports.choose(HOST)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the Java process exists, even if paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process ID of the running broker.

        Raises:
            RuntimeError: The broker does not run.
        """
        if self._process is None or not self.running:
            raise RuntimeError(f"the broker in {self.directory} does not run: start it first")
        return self._process.pid

    def stop(self, timeout: float = 30) -> None:
        """Stop the broker in order, or kill it after ``timeout`` seconds. Idempotent."""
        if self._process is None:
            return
        # Popen knows whether the process has ended, so it does not signal another process with the same ID.
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the broker, like a power cut. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Freeze the broker: its port stays open, but nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        # The signal takes a moment to stop all threads. WNOWAIT leaves an exit code to the waiting thread if
        # the process ends first.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """End a :meth:`pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> None:
        """Wait until the process ends, for any reason."""
        if self._process is not None:
            self._process.wait()

    def _write_files(self, overrides: Mapping[str, str]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = server_files.server_properties(HOST, self.port, self.controller_port, overrides)
        (self.directory / "server.properties").write_text(properties, "utf-8")
        (self.directory / "log4j2.xml").write_text(server_files.LOG4J2, "utf-8")

    def _execute(
        self, java_command: Sequence[str], options: Sequence[str], output: Path, keep: int | None = None
    ) -> None:
        """Start the process in its own session, with its life bound to that of this process.

        In its own session it does not get the terminal's Ctrl-C, which would reach it before this process could
        end it in order. On Linux the kernel kills it when this process dies. The kernel watches the *thread* that
        starts the child, so only a child started on the main thread is bound.

        ``keep``: file descriptor that stays open in it.
        """
        command = [*java_command, *options, "kafka.Kafka", "server.properties"]
        if sys.platform == "linux" and threading.current_thread() is threading.main_thread():
            command = [sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid()), *command]
        with output.open("wb") as file:
            self._process = subprocess.Popen(  # noqa: S603 - arguments are our own
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=() if keep is None else (keep,),
            )


def java_command(version: str, *, archived: bool = True) -> list[str]:
    """Return Java's command with Kafka's class path.

    ``archived``: use the archive of classes if there is one.

    Raises:
        PrerequisiteError: Java or the jars are missing.
    """
    program, class_path = java.find(), jars.class_path(bundle=jars.kafka(version))
    shared = classes.reading(program, class_path) if archived else []
    return [
        str(program), *shared, "-Dlog4j2.configurationFile=log4j2.xml", "-cp", class_path, *JVM_OPTIONS,
    ]  # fmt: skip


_LINES_SHOWN: Final = 20
_FRAME: Final = re.compile(r"\s+(at |\.\.\. \d+ more)")
_LEVEL: Final = re.compile(r"\S+ \S+ (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
_REFUSED: Final = re.compile(
    r"(?:ConfigException: |IllegalArgumentException: requirement failed: |KafkaException: (?=Class ))(.+)"
)
"""Messages with which Kafka refuses a property."""


def raise_if_refused(text: str) -> None:
    """Raise PrerequisiteError if Kafka refused a property."""
    if found := _REFUSED.search(text):
        raise PrerequisiteError(f"Kafka refuses a property: {found[1].strip()}: correct or remove it")


def relevant_lines(text: str) -> str:
    """Return a log's errors without stack frames, else its last lines, indented. Errors may stand earlier."""
    lines = [line for line in text.strip().splitlines() if not _FRAME.match(line)]
    levels = [match and match[1] for match in map(_LEVEL.match, lines)]
    if {"ERROR", "FATAL"} & set(levels):
        pairs = zip(lines, levels, strict=True)
        lines = [line for line, level in pairs if level in {None, "ERROR", "FATAL"}]
    return "\n".join(f"  {line}" for line in lines[-_LINES_SHOWN:])
