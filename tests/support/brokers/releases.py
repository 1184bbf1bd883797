"""Releases: the bytes that each has left, and its code, out of the project's history."""

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest

from tests.support.checkout import ROOT

FOLDER: Final = ROOT / "tests" / "fixtures" / "releases"
VERSIONS: Final = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def commit(version: str) -> str:
    return (FOLDER / version / "commit").read_text().strip()


def tree(version: str, folder: Path) -> Path:
    """Its code, in a new folder; skips where the history does not reach back to it, as in a shallow clone."""
    done = subprocess.run(["git", "archive", commit(version)], cwd=ROOT, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"the code of {version} is not in this history: git fetch --unshallow")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder
