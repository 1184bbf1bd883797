"""Starts a child process that does not outlive this one."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

_LEASH: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 = PR_SET_PDEATHSIG, kept across exec
if os.getppid() != int(sys.argv[1]):  # the parent died before the call above could take effect
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Program between fork and exec, in its own interpreter: a preexec_fn could deadlock beside threads."""


def launch(command: Sequence[str], *, cwd: Path, output: IO[bytes], keep: int) -> subprocess.Popen[bytes]:
    """Start ``command`` in its own session, with its life bound to that of this process.

    In its own session it does not get the terminal's Ctrl-C, which would reach it before this process could
    end it in order. On Linux the kernel kills it when this process dies. The kernel watches the *thread* that
    starts the child, so only a child started on the main thread is bound.

    Args:
        command: Program (an absolute path) and arguments.
        cwd: Working directory of the child.
        output: File for both output streams.
        keep: File descriptor that stays open in the child.
    """
    if sys.platform == "linux" and threading.current_thread() is threading.main_thread():
        command = [sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid()), *command]
    return subprocess.Popen(  # noqa: S603 - arguments are our own
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=(keep,),
    )
