"""Signals end a run: in programs of their own, which receive real ones."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.support.checkout import ROOT

# A signal may come between the interpreter's check and a system call: each wait is a loop of short sleeps.
BEGIN = """
import signal, sys, threading, time
from reconcile.session.stop_signals import StoppedError, stoppable
def told(text):
    print(text, flush=True)
def ready():
    told("ready")
def wait(condition=lambda: False):
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
try:
    with stoppable() as stop:
        stop.ends(lambda: told("softly"), lambda: told("surely"))
"""
END = """
except StoppedError as error:
    told("unwound")
    sys.exit(error.exit_code)
told("to the end")
"""
LIMIT_S = 60


@contextmanager
def _program(body: str, *before: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a program that prints when it is ready; ``body`` runs stoppably, ``before`` is its starter."""
    program = BEGIN + textwrap.indent(body.strip("\n"), " " * 8) + END
    process = subprocess.Popen(
        [*before, sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    try:
        assert _lines(process, 1) == ["ready"]
        yield process
    finally:
        process.kill()
        process.wait()


def _lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().rstrip("\n") for _ in range(count)]


def _rest(process: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    """Exit code, further lines, errors."""
    process.wait(timeout=LIMIT_S)
    # Not communicate(): it would pass over what was read together with the first line.
    assert process.stdout is not None
    assert process.stderr is not None
    return process.returncode, process.stdout.read().splitlines(), process.stderr.read()


def _ended(body: str, signals: Sequence[int], *before: str) -> tuple[int, list[str], str]:
    with _program(body, *before) as process:
        for number in signals:
            process.send_signal(number)
        return _rest(process)


ERROR = """
try:
    ready(); wait()
except BaseException:
    raise ConnectionError("the JVM is gone")
"""
STARTED = """
with stop.held():
    ready(); wait(lambda: stop.number is not None)
    stop.ends(lambda: told("the new one"), lambda: None)
told("not reached")
"""
PYSPARK = """
signal.signal(signal.SIGINT, lambda *_: told("theirs"))
stop.install()
ready(); wait()
"""


@pytest.mark.parametrize(
    ("body", "number", "code", "told"),
    [
        ("ready(); wait()", signal.SIGINT, 130, ["softly"]),
        ("ready(); wait()", signal.SIGTERM, 143, ["softly"]),
        ("ready(); wait()", signal.SIGHUP, 129, ["softly"]),
        (ERROR, signal.SIGINT, 130, ["softly"]),
        (STARTED, signal.SIGTERM, 143, ["softly", "the new one"]),
        (PYSPARK, signal.SIGINT, 130, ["softly"]),
    ],
)
def test_a_signal_unwinds(body: str, number: int, code: int, told: list[str]) -> None:
    """The work is asked to end, whatever it does meanwhile, and the exit code is the shell's."""
    assert _ended(body, [number]) == (code, [*told, "unwound"], "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_ends_at_once(number: int, code: int) -> None:
    """A second signal ends a program at once, even if other code caught the first one or the end takes long."""
    body = """
try:
    ready(); wait()
except BaseException:
    told("caught")
    wait()
"""
    with _program(body) as process:
        process.send_signal(signal.SIGINT)
        assert _lines(process, 2) == ["softly", "caught"]
        process.send_signal(number)

        assert _rest(process) == (code, ["surely"], "")


def test_an_ignored_signal_stays_ignored() -> None:
    """A run under nohup outlives its terminal, also when foreign code has listened."""
    body = """
came = []
signal.signal(signal.SIGUSR1, lambda *_: came.append(1))
signal.signal(signal.SIGHUP, lambda *_: told("theirs"))
stop.install()
ready(); wait(lambda: came)
"""
    signals = [signal.SIGHUP, signal.SIGUSR1]

    assert _ended(body, signals, "sh", "-c", 'trap "" HUP; exec "$@"', "sh") == (0, ["to the end"], "")
