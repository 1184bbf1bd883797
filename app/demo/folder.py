"""The folder that a demo works in: kept where something went wrong, or where somebody asks for it."""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from app.demo.processes import InterruptedDemoError, Interruption


def in_folder(prefix: str, keep: bool, work: Callable[[Path, Interruption], int]) -> int:
    """Do it in a new folder.

    Args:
        prefix: Of the folder's name.
        keep: Keep it. After a failure it is kept anyway.
        work: Gets the folder, and what tells of signals; returns an exit code.

    Returns:
        Its exit code; 128 + the signal's number when interrupted.
    """
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    evidence = True
    try:
        with Interruption() as interruption:
            code = work(directory, interruption)
        evidence = code != 0
        return code
    except InterruptedDemoError as interrupted:
        evidence = False
        sys.stderr.write("interrupted: what was started is ended, nothing was judged\n")
        return 128 + interrupted.number
    finally:
        if keep or evidence:
            sys.stderr.write(f"configuration, logs and data are in {directory}\n")
        else:
            shutil.rmtree(directory, ignore_errors=True)
