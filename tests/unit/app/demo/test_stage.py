import signal

import pytest

from app.demo.processes import Child
from app.demo.stage import DemoError, ended


def test_how_it_ended() -> None:
    """The exit code of a program is its result.

    A negative one, as when memory runs out, is never a success, whatever larger code stands beside it. A program that
    still runs has given no result.
    """
    running = Child(["-S", "-c", "import time; time.sleep(60)"], None)
    try:
        with pytest.raises(DemoError, match="did not end within 0 s"):
            ended(running, "check", 0, lambda: None)
    finally:
        running.kill()
    child = Child(["-S", "-c", "raise SystemExit(2)"], None)
    assert ended(child, "check", 30, lambda: None) == 2

    killed = Child(["-S", "-c", f"import os; os.kill(os.getpid(), {signal.SIGKILL.value})"], None)
    with pytest.raises(DemoError, match="signal 9 ended the check: look whether memory ran out"):
        ended(killed, "check", 30, lambda: None)
