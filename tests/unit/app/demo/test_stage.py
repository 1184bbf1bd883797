"""What the demos make of the programs that judge: only one that came to its end has said anything."""

import signal

import pytest

from app.demo.processes import Child
from app.demo.stage import DemoError, ended


@pytest.mark.parametrize("code", [0, 1, 2])
def test_exit_codes(code: int) -> None:
    """They are what it said."""
    child = Child(["-S", "-c", f"raise SystemExit({code})"], None)

    assert ended(child, "check", 30, lambda: None) == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_ended_by_a_signal(number: signal.Signals) -> None:
    """As when memory runs out: a negative code is no success, whatever larger one stands beside it."""
    child = Child(["-S", "-c", f"import os; os.kill(os.getpid(), {number.value})"], None)

    with pytest.raises(
        DemoError, match=f"signal {number.value} ended the check: look whether memory ran out"
    ):
        ended(child, "check", 30, lambda: None)


def test_no_end() -> None:
    """Nor has one said anything that still runs."""
    child = Child(["-S", "-c", "import sys; sys.stdin.read(); import time; time.sleep(60)"], None)
    try:
        with pytest.raises(DemoError, match="did not end within 0 s"):
            ended(child, "check", 0, lambda: None)
    finally:
        child.kill()
