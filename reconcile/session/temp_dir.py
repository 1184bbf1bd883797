"""Temporary folder of this process for its JVM. Folders of killed processes are removed."""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ringfence_kafka.errors import PrerequisiteError

PREFIX: Final = "ringfence-spark-"
YOUNG_S: Final = 60.0  # a younger folder may not be locked by its owner yet
_LOCK: Final = "lock"
_PROOF_BYTES: Final = 2**16


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Yield a locked temporary folder, after removing folders of dead processes."""
    _sweep()
    try:
        made = Path(tempfile.mkdtemp(prefix=PREFIX))
    except OSError as error:
        raise _no_room(error) from error
    try:
        try:
            # the system releases the lock at any end of the process
            lock = (made / _LOCK).open("wb")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (made / "proof").write_bytes(bytes(_PROOF_BYTES))
        except OSError as error:
            raise _no_room(error) from error
        with lock:
            yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _sweep() -> None:
    """Remove folders whose lock is free. Locks also work across containers that share the folder."""
    with contextlib.suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                if _is_left(path):
                    shutil.rmtree(path, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    there = folder.lstat()
    if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.geteuid():
        return False
    opened = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        if time.time() - os.fstat(opened).st_mtime < YOUNG_S:
            return False
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(opened)
    return True


def _no_room(error: OSError) -> PrerequisiteError:
    return PrerequisiteError(
        f"no temporary file can be written ({error.strerror or error}): make room, or name another folder in TMPDIR"
    )
