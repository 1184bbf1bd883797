import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from reconcile.page import document, pages
from tests.support.pages.report import RENDERED, RUN


def _program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    program = "import sys; from reconcile.page import document; code = document.main(sys.argv[1:]); "
    program += "assert 'matplotlib.pyplot' not in sys.modules; sys.exit(code)"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, timeout=100, check=False, env={**os.environ, **environment},
    )  # fmt: skip


def test_drawn_again(tmp_path: Path) -> None:
    """A page drawn from figures.json has the same bytes, and nothing else is printed. Matplotlib has no place for its files here."""
    kept = tmp_path / "figures.json"
    kept.write_text(RUN.to_json(), "utf-8")
    done = _program(str(kept), HOME="/proc/none", XDG_CONFIG_HOME="/proc/none", XDG_CACHE_HOME="/proc/none")

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == RENDERED.encode()


def test_unreadable_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "figures.json"
    for text in (None, "{", "[]", json.dumps({"addresses": [{}]}), '{"addresses": [], "new": 1}'):
        if text is not None:
            kept.write_text(text, "utf-8")
        assert document.main([str(kept)]) == 2
        said = capsys.readouterr().err
        assert f"{kept}: " in said
        assert "name " in said


def test_a_run_needs_no_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A page that cannot be drawn is reported in one line, and the run continues."""
    drawn = pages.written(RUN)
    monkeypatch.setattr(document, "render", Mock(side_effect=ValueError("no ink")))
    failed = pages.written(RUN)
    monkeypatch.setitem(sys.modules, "reconcile.page.document", None)
    missing = pages.written(RUN)
    said = capsys.readouterr().err.splitlines()

    assert (drawn, failed, missing) == (RENDERED, None, None)
    assert said[0] == "no report.html: drawing it failed (ValueError('no ink')); figures.json has its numbers"
    assert [line.partition(":")[0] for line in said] == ["no report.html"] * 2
