"""The demos' reading of the judging programs: only a program that ran to its end has given a result."""

import signal

import pytest

from app.demo.processes import Child
from app.demo.stage import DemoError, ended


@pytest.mark.parametrize("code", [0, 1, 2])
def test_exit_codes(code: int) -> None:
    """The exit code of a program is its result."""
    child = Child(["-S", "-c", f"raise SystemExit({code})"], None)

    assert ended(child, "check", 30, lambda: None) == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_ended_by_a_signal(number: signal.Signals) -> None:
    """A negative exit code, as when memory runs out, is never a success, whatever larger code stands beside it."""
    child = Child(["-S", "-c", f"import os; os.kill(os.getpid(), {number.value})"], None)

    with pytest.raises(
        DemoError, match=f"signal {number.value} ended the check: look whether memory ran out"
    ):
        ended(child, "check", 30, lambda: None)


def test_no_end() -> None:
    """A program that still runs has given no result."""
    child = Child(["-S", "-c", "import sys; sys.stdin.read(); import time; time.sleep(60)"], None)
    try:
        with pytest.raises(DemoError, match="did not end within 0 s"):
            ended(child, "check", 0, lambda: None)
    finally:
        child.kill()
