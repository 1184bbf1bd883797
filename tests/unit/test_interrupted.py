"""How a program ends whose interrupt was caught."""

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import atexit, ctypes, click
from ringfence_kafka import program

FILE_INPUT = 257  # Py_file_input

@click.command()
def command():
    atexit.register(print, "last words")
    {body}

program.run(command, [], "it")
"""


def _run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """To its end."""
    (folder / "it.py").write_text(program)
    return subprocess.run(
        [sys.executable, "-m", "it"],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        "raise KeyboardInterrupt",
        "ctypes.pythonapi.PyRun_String(b'raise KeyboardInterrupt', FILE_INPUT, *2 * [ctypes.py_object(globals())])",
    ],
    ids=["in Python", "in what an extension runs"],
)
def test_interrupt_is_an_exit_code(tmp_path: Path, body: str) -> None:
    """Whoever started the program learns of it by the code, also where the interpreter remembers an interrupt for ever."""
    ended = _run(tmp_path, _PROGRAM.format(body=body))

    assert (ended.returncode, ended.stdout, ended.stderr.strip()) == (130, "last words\n", "")


_AT_ITS_END = """
import atexit, os, signal, sys
from ringfence_kafka.loading import quiet_end

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
        kill(pid, number)

last = Last()
if {at_exit}:
    atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
with quiet_end():
    print("done", flush=True)
    sys.exit(1)
"""


@pytest.mark.parametrize("at_exit", [True, False], ids=["at exit", "while modules are taken apart"])
def test_an_interrupt_at_its_end_changes_nothing(tmp_path: Path, at_exit: bool) -> None:
    """The exit code is of what was done, and was told."""
    ended = _run(tmp_path, _AT_ITS_END.format(at_exit=at_exit))

    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "done\n", "")
