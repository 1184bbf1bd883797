"""Ringfence's programs without the second that loading them takes: a process that has loaded them forks for each, with a state of its own."""

import atexit
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from tests.support.checkout import ROOT

LOADED: Final = (
    "app.cli", "app.commands.topics.topics", "app.commands.rings.show", "app.commands.consumers.show", "app.commands.status.read", "app.worker.run",
    "app.bridge.run", "ringfence_client.__main__", "ringfence_client.command",
)  # fmt: skip
AT_LOADING: Final = ("RINGFENCE_NATIVE", "PYTHON", "LD_")
"""Prefixes of variables that count while modules load: if one differs from ours, a program starts from nothing."""
LOADING_LIMIT_S: Final = 120.0
_REQUEST_BYTES: Final = 2**18
_FILES: Final = 3


class Fork:
    """A program that runs; like :class:`subprocess.Popen` as far as tests need it."""

    def __init__(self, pid: int, ended: threading.Condition, codes: Mapping[int, int]) -> None:
        self.pid = pid
        self._ended, self._codes = ended, codes

    def poll(self) -> int | None:
        with self._ended:
            return self._codes.get(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        with self._ended:
            if not self._ended.wait_for(lambda: self.pid in self._codes, timeout):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            return self._codes[self.pid]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """The process that forks; it ends with this one."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._lock = threading.Lock()
        self._ended = threading.Condition()
        self._codes: dict[int, int] = {}
        self._started: list[int] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forks", str(theirs.fileno())],
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        threading.Thread(target=self._listen, name="forks", daemon=True).start()

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[int], folder: Path
    ) -> Fork:
        request = json.dumps([list(arguments), dict(environment), str(folder)]).encode()
        with self._lock:
            socket.send_fds(self._socket, [request], files)
            with self._ended:
                if not self._ended.wait_for(lambda: self._started, LOADING_LIMIT_S):
                    raise TimeoutError("the process that forks does not answer")
                return Fork(self._started.pop(), self._ended, self._codes)

    def _listen(self) -> None:
        while answer := self._socket.recv(_REQUEST_BYTES):
            pid, code = json.loads(answer)
            with self._ended:
                if code is None:
                    self._codes.pop(pid, None)
                    self._started.append(pid)
                else:
                    self._codes[pid] = code
                self._ended.notify_all()


_forks: list[Forks] = []


def start(
    arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[int], folder: Path = ROOT
) -> "Fork | subprocess.Popen[Any]":
    """Run Ringfence's program with these arguments and this whole environment; ``files``: its standard input, output and error."""
    if folder != ROOT or _at_loading(environment) != _at_loading(os.environ):
        command = [sys.executable, "-m", "app", *arguments]
        stdin, stdout, stderr = files
        return subprocess.Popen(
            command, cwd=folder, env=dict(environment), stdin=stdin, stdout=stdout, stderr=stderr
        )
    if not _forks:
        _forks.append(Forks())
    return _forks[0].start(arguments, environment, files, folder)


def _at_loading(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_LOADING)}


# -- the process that forks -------------------------------------------------------------------------------------------


def _serve(connection: socket.socket) -> None:
    """Fork for each request until the connection ends; return in a fork, which continues with the program."""
    woken, wake = socket.socketpair()
    woken.setblocking(False)
    wake.setblocking(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the clients
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    selector = selectors.DefaultSelector()
    selector.register(connection, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is woken:
                woken.recv(4096)
                _tell_ended(connection)
                continue
            request, files, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, _FILES)
            if not request:
                sys.exit(0)
            pid = os.fork()
            if not pid:
                for item in (connection, woken, wake, selector):
                    item.close()
                _become(files, *json.loads(request))
                return
            connection.send(json.dumps([pid, None]).encode())
            for file in files:
                os.close(file)


def _tell_ended(connection: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            connection.send(json.dumps([found[0], os.waitstatus_to_exitcode(found[1])]).encode())


def _become(files: Sequence[int], arguments: list[str], environment: dict[str, str], folder: str) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    sys.argv[1:] = arguments


def _main() -> NoReturn:
    for item in LOADED:
        importlib.import_module(item)
    if threads := len(list(Path("/proc/self/task").iterdir())) - 1:
        raise RuntimeError(f"loading has begun {threads} threads, which forks would lack")
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    if sys.argv[1] == "consume":
        del sys.argv[1]
        from ringfence_client.__main__ import main
    else:
        from app.__main__ import main
    _run(main)


def _run(program: Callable[[], NoReturn]) -> NoReturn:
    """Run a program and end as Python does, but free no memory: a fork would first copy all that was loaded before it."""
    try:
        program()
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code or 0)


if __name__ == "__main__":
    _main()
