"""Children of the demo and the signals that end it."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from app.demo.processes import Child, InterruptedDemoError, Interruption


def _never() -> None:
    """Nothing to look at."""


def test_signals_are_noted_not_raised() -> None:
    """A signal shows at the next check and nowhere before; the former handlers come back."""
    former = signal.getsignal(signal.SIGTERM)
    with Interruption() as interruption:
        interruption.check()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(InterruptedDemoError) as caught:
            interruption.check()
    assert caught.value.number == signal.SIGTERM

    assert signal.getsignal(signal.SIGTERM) is former


def test_a_signal_ends_a_sleep() -> None:
    """Sleeping is no excuse."""
    began = time.monotonic()
    with Interruption() as interruption:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(InterruptedDemoError):
            interruption.sleep(30)

    assert time.monotonic() - began < 10


def test_an_immediate_signal_raises_once() -> None:
    """Somebody else's wait is broken off at once; a second signal does not break off the clean-up behind it."""
    cleaned = []

    def wait_and_clean() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(30)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            cleaned.append(True)

    with Interruption() as interruption, pytest.raises(InterruptedDemoError), interruption.immediate():
        wait_and_clean()

    assert cleaned == [True]


def test_a_child_sees_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting in the environment could lead the demo to a real cluster; other variables stay, and no class archive is made."""
    monkeypatch.setenv("RINGFENCE_KAFKA__BOOTSTRAP_SERVERS", "real:9092")
    monkeypatch.setenv("RINGFENCE_CACHE", "here")
    program = "import os; print([each for each in sorted(os.environ) if each.startswith('RINGFENCE_')])"
    child = Child(["-c", program], tmp_path / "log")

    assert child.wait(30, _never) == 0
    assert child.log_tail() == "  ['RINGFENCE_CACHE', 'RINGFENCE_CLASS_ARCHIVE']"


def test_waiting_has_a_limit(tmp_path: Path) -> None:
    """None = it still runs; a kill ends it, and killing it again does no harm."""
    child = Child(["-c", "import time; time.sleep(60)"], tmp_path / "log")

    assert child.wait(0.2, _never) is None
    child.kill()
    child.kill()
    assert child.exit_code == -signal.SIGKILL


def test_the_interpreter_is_ours(tmp_path: Path) -> None:
    """Children run in the same environment, and both of their streams are in the log."""
    program = "import sys; print(sys.executable, flush=True); sys.stderr.write('fault')"
    child = Child(["-c", program], tmp_path / "log")
    child.wait(30, _never)

    assert child.log_tail() == f"  {sys.executable}\n  fault"
