"""The temporary folder of a run: what a killed one has left goes with the next, and nothing else does."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from reconcile.session.temp_dir import YOUNG_S, own_folder
from tests.support.checkout import ROOT

LIVES = """
import time
from reconcile.session.temp_dir import own_folder
with own_folder() as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


def _old(folder: Path) -> Path:
    then = time.time() - 2 * YOUNG_S
    os.utime(folder / "lock", (then, then))
    return folder


def test_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a killed process is removed. Folders of a living process, young folders and foreign ones stay."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    living, killed = (
        subprocess.Popen(
            [sys.executable, "-c", LIVES],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        for _ in range(2)
    )  # fmt: skip
    try:
        lives, left = (
            _old(Path((popen.stdout or sys.stdin).readline().strip())) for popen in (living, killed)
        )
        killed.kill()
        killed.wait()
        others = [tmp_path / "ringfence-spark-of-a-former-version", tmp_path / "ringfence-spark-young"]
        for other in others:
            other.mkdir()
        (others[1] / "lock").touch()
        (tmp_path / "ringfence-spark-link").symlink_to(others[0])
        assert left.exists()
        with own_folder() as own:
            assert sorted(tmp_path.iterdir()) == sorted(
                [own, lives, *others, tmp_path / "ringfence-spark-link"]
            )
    finally:
        for process in (living, killed):
            process.kill()
            process.wait()

    assert not own.exists()
