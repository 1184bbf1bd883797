"""The example of a tested handler in docs/consume.md passes as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.checkout import ROOT

FILE = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_it_passes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "consume.md").read_text("utf-8")
    section = page.partition("\n## Test a handler\n")[2].partition("\n## ")[0]
    files: dict[str, str] = dict(FILE.findall(section))
    assert list(files) == ["totals.py", "test_totals.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error::ResourceWarning", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{section.count('def test_')} passed" in done.stdout
