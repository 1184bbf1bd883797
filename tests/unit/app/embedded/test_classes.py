"""The archive of the broker's classes, which fits one Java; a misfit is not a problem."""

import os
import subprocess
from pathlib import Path

import pytest

from app.embedded import classes, jars
from ringfence_kafka.process import java


def test_none_and_one_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker starts without a missing archive, and silently ignores a damaged one or that of another Java."""
    monkeypatch.setattr(jars, "cache_directory", lambda: tmp_path)
    program = java.find()
    none = classes.reading(program, str(tmp_path))
    classes.archive(program, str(tmp_path)).write_bytes(os.urandom(100_000))
    options = classes.reading(program, str(tmp_path))
    done = subprocess.run(
        [program, *options, "-version"], capture_output=True, text=True, check=False, timeout=60
    )

    assert none == []
    assert len(options) == 2
    assert (done.returncode, done.stdout) == (0, "")
    assert "version" in done.stderr.splitlines()[0]
