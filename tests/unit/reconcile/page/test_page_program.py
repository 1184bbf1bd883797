"""The page as a program draws it, and as Chromium shows it."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Final

import pytest

from reconcile.page import document, pages
from reconcile.page.report_data import Figures, LargeGroup
from tests.support.pages.report import RENDERED, RUN


def _program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    program = "import sys; from reconcile.page import document; code = document.main(sys.argv[1:]); "
    program += "assert 'matplotlib.pyplot' not in sys.modules; sys.exit(code)"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, timeout=100, check=False, env={**os.environ, **environment},
    )  # fmt: skip


def test_drawn_again(tmp_path: Path) -> None:
    """A page drawn from figures.json has the same bytes, and nothing else is printed.

    Matplotlib has no place for its files here.
    """
    kept = tmp_path / "figures.json"
    kept.write_text(RUN.to_json(), "utf-8")
    done = _program(str(kept), HOME="/proc/none", XDG_CONFIG_HOME="/proc/none", XDG_CACHE_HOME="/proc/none")

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == RENDERED.encode()


@pytest.mark.parametrize(
    "text", [None, "{", "[]", json.dumps({"addresses": [{}]}), '{"addresses": [], "new": 1}']
)
def test_unreadable_figures(tmp_path: Path, text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "figures.json"
    if text is not None:
        kept.write_text(text, "utf-8")
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)

    assert document.main([str(kept)]) == 2
    assert f"{kept}: " in said.getvalue()
    assert "name " in said.getvalue()


MEASURE: Final = """<!DOCTYPE html><iframe width="360" height="800" style="border:0" srcdoc="%s"></iframe><pre></pre>
<script>
document.querySelector("iframe").onload = event => {
  const inner = event.target.contentWindow, root = inner.document.documentElement;
  for (const each of inner.document.querySelectorAll("details")) each.open = true;
  const wide = [...inner.document.body.querySelectorAll("*")].filter(each =>
    each.getBoundingClientRect().right > 360.5 && !each.closest(".scroll *"));
  document.querySelector("pre").textContent = "measured " + JSON.stringify({
    width: root.scrollWidth, dark: inner.matchMedia("(prefers-color-scheme: dark)").matches,
    paper: inner.getComputedStyle(inner.document.body).backgroundColor,
    beyond: wide.map(each => each.tagName + ": " + each.textContent.slice(0, 40))}) + " end";
};
</script>"""


def _long_names() -> Figures:
    long = "x" * 10_000
    address = RUN.addresses[0]
    findings = [replace(finding, id=long, group=long, topic="t" * 249) for finding in address.findings]
    worst = replace(address, name="n" * 249, groups_largest=[LargeGroup(long, 10**12)], findings=findings)
    return replace(RUN, addresses=[worst, *RUN.addresses], title="t" * 300, advice=[long])


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_overflows_a_phone(tmp_path: Path, dark: bool) -> None:
    """The page fits 360 pixels in both colour schemes with everything unfolded, and nothing reaches out of it."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine: install the package chromium")
    measured = tmp_path / "measure.html"
    measured.write_text(MEASURE % escape(document.render(_long_names())), "utf-8")
    done = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--virtual-time-budget=5000", "--dump-dom",
         measured.as_uri()],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    found = re.search(r"measured (\{.*\}) end</pre>", done.stdout)
    assert found is not None, done.stderr[-2000:]
    result = json.loads(found[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))

    paper = "rgb(20, 23, 26)" if dark else "rgb(253, 253, 252)"
    assert result == {"width": 360, "dark": dark, "paper": paper, "beyond": []}


def test_a_run_needs_no_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A page that cannot be drawn is reported in one line, and the run continues."""

    def broken(_: Figures) -> str:
        raise ValueError("no ink")

    drawn = pages.written(RUN)
    monkeypatch.setattr(document, "render", broken)
    failed = pages.written(RUN)
    monkeypatch.setitem(sys.modules, "reconcile.page.document", None)
    missing = pages.written(RUN)
    said = capsys.readouterr().err.splitlines()

    assert (drawn, failed, missing) == (RENDERED, None, None)
    assert said[0] == "no report.html: drawing it failed (ValueError('no ink')); figures.json has its numbers"
    assert [line.partition(":")[0] for line in said] == ["no report.html"] * 2
