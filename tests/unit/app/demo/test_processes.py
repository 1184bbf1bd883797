import sys
from pathlib import Path

import pytest

from app.demo.processes import Child


def test_a_child_sees_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting in the environment could lead the demo to a real cluster; other variables stay, and no class archive is made."""
    monkeypatch.setenv("RINGFENCE_KAFKA__BOOTSTRAP_SERVERS", "real:9092")
    monkeypatch.setenv("RINGFENCE_CACHE", "here")
    program = (
        "import os, sys; print(sys.executable, flush=True);"
        "sys.stderr.write(str([each for each in sorted(os.environ) if each.startswith('RINGFENCE_')]))"
    )
    child = Child(["-c", program], tmp_path / "log")

    assert child.wait(30, lambda: None) == 0
    assert child.log_tail() == f"  {sys.executable}\n  ['RINGFENCE_CACHE', 'RINGFENCE_CLASS_ARCHIVE']"
