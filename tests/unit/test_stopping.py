"""How signals end a run: in programs of their own, which are sent real ones."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.support.worker import ROOT

BEGIN = """
import ctypes, os, signal, sys, threading, time
from reconcile import stopping
from reconcile.stopping import StoppedError, stoppable
stopping.END_LIMIT_S = float(sys.argv[1])
def told(text):
    print(text, flush=True)
def ready():
    told("ready")
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
def _program(body: str, limit_s: float, *before: str) -> Iterator[subprocess.Popen[str]]:
    """One that says when it is ready; ``body`` is what runs stoppably, ``before`` what starts it."""
    lines = "".join(f"        {line}\n" for line in body.strip("\n").splitlines())
    process = subprocess.Popen(
        [*before, sys.executable, "-c", BEGIN + lines + END, str(limit_s)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def _ended(
    body: str, signals: Sequence[int], *before: str, limit_s: float = LIMIT_S
) -> tuple[int, list[str], str]:
    """Exit code, lines after the first, errors."""
    with _program(body, limit_s, *before) as process:
        for each in signals:
            process.send_signal(each)
        process.wait(timeout=LIMIT_S)
        # Not communicate(): it would pass over what was read together with the first line.
        assert process.stdout is not None
        assert process.stderr is not None
        return process.returncode, process.stdout.read().splitlines(), process.stderr.read()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_unwinds(number: int, code: int) -> None:
    """At once: what was started is told to end, and the exit code is the shell's."""
    assert _ended("ready(); time.sleep(60)", [number]) == (code, ["softly", "unwound"], "")


def test_the_first_one_counts() -> None:
    """The end is not interrupted by whoever is impatient."""
    body = """
try:
    ready(); time.sleep(60)
finally:
    time.sleep(0.3)
    told("cleaned")
"""

    code, said, err = _ended(body, [signal.SIGTERM] + [signal.SIGINT] * 5)

    assert (code, said, err) in [
        (143, ["softly", "cleaned", "unwound"], ""),
        (130, ["softly", "cleaned", "unwound"], ""),  # those that came together
    ]


def test_two_at_once() -> None:
    """The interpreter has nothing to say of the second."""
    body = """
both = [signal.SIGTERM, signal.SIGINT]
signal.pthread_sigmask(signal.SIG_BLOCK, both)
for each in both:
    signal.raise_signal(each)
ready()
signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
time.sleep(60)
"""

    assert _ended(body, []) == (130, ["softly", "unwound"], "")


def test_foreign_code_that_catches_everything() -> None:
    """The exception is lost, and the end is forced."""
    body = """
first = [ready]
while True:
    try:
        first and first.pop()()
        time.sleep(60)
    except BaseException:
        told("caught")
"""

    assert _ended(body, [signal.SIGINT], limit_s=0.5) == (130, ["softly", "caught", "surely"], "")


def test_code_outside_of_python() -> None:
    """It returns to no handler; the end is forced all the same."""
    body = """
library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
library.pthread_mutex_lock(mutex)
threading.Timer(0.3, ready).start()
library.pthread_mutex_lock(mutex)  # nobody unlocks it, and no signal ends the wait
"""

    assert _ended(body, [signal.SIGTERM], limit_s=0.5) == (143, ["surely"], "")


def test_a_signal_that_ends_no_wait() -> None:
    """The system may give it to another thread, or just before the main one begins to wait: it is noticed all the same."""
    body = """
other = next(each for each in threading.enumerate() if each.name == "stopping")
threading.Timer(0.3, lambda: (ready(), signal.pthread_kill(other.ident, signal.SIGTERM))).start()
time.sleep(60)
"""

    assert _ended(body, []) == (143, ["softly", "unwound"], "")


def test_what_goes_wrong_after_a_signal_is_its_doing() -> None:
    """No trace of calls to what has ended."""
    body = """
try:
    ready(); time.sleep(60)
except BaseException:
    raise ConnectionError("the JVM is gone")
"""

    assert _ended(body, [signal.SIGINT]) == (130, ["softly", "unwound"], "")


def test_what_must_be_finished() -> None:
    """A process that is being started is known before the signal is heeded."""
    body = """
with stop.held():
    ready(); time.sleep(0.5)
    stop.ends(lambda: told("the new one"), lambda: None)
told("not reached")
"""

    assert _ended(body, [signal.SIGTERM]) == (143, ["softly", "the new one", "unwound"], "")


def test_handlers_of_others() -> None:
    """What PySpark sets is replaced."""
    body = """
signal.signal(signal.SIGINT, lambda *_: told("theirs"))
stop.heed_again()
ready(); time.sleep(60)
"""

    assert _ended(body, [signal.SIGINT]) == (130, ["softly", "unwound"], "")


def test_what_the_starter_ignores() -> None:
    """A run under nohup outlives its terminal, also when foreign code has listened."""
    body = """
signal.signal(signal.SIGHUP, lambda *_: told("theirs"))
stop.heed_again()
ready(); time.sleep(0.5)
"""

    assert _ended(body, [signal.SIGHUP], "sh", "-c", 'trap "" HUP; exec "$@"', "sh") == (
        0,
        ["to the end"],
        "",
    )


def test_afterwards_all_is_as_before() -> None:
    """Handlers are put back, and no thread stays."""
    body = "told('within')"
    begin = BEGIN.replace("try:", "before = signal.getsignal(signal.SIGINT)\ntry:")
    program = (
        begin
        + f"        {body}\n"
        + END
        + "\ntold((signal.getsignal(signal.SIGINT) == before, threading.active_count()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )

    assert done.stdout.splitlines() == ["within", "to the end", "(True, 1)"]


@pytest.mark.parametrize("program", ["app", "reconcile"])
def test_interrupted_while_it_loads(program: str) -> None:
    """Modules take a second: an end, and no trace."""
    spied = (
        "import builtins, runpy, sys, time; real = builtins.__import__\n"
        "def slow(name, *rest, **named):\n"
        "    if name in ('click', 'pyspark.sql', 'app.cli', 'reconcile.job'):\n"
        "        print('ready', flush=True); time.sleep(60)\n"
        "    return real(name, *rest, **named)\n"
        f"builtins.__import__ = slow; sys.argv = ['{program}', '--help']; runpy.run_module('{program}', run_name='__main__')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", spied], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    begun = time.monotonic()
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()

    assert (process.returncode, err) == (130, "")
    assert time.monotonic() - begun < LIMIT_S
