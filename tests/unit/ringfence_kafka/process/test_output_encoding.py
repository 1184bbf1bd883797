import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import click
from rich.table import Table
from conf.terminal import print_table
from ringfence_kafka.process import command_line

@click.command()
def command():
    click.echo("g → é 日 \\udc80 …")
    table = Table("group…")
    table.add_row("日 →")
    print_table(table)

command_line.run(command, [], "it")
"""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_any_name_is_written(encoding: str, tmp_path: Path) -> None:
    """Characters of ours become plain ones, those of a name become escapes, and the exit code stays."""
    (tmp_path / "it.py").write_text(_PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "it"],
        cwd=tmp_path, capture_output=True, timeout=60, check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
    )  # fmt: skip
    first, *table = done.stdout.decode(encoding, "replace").splitlines()

    assert (done.returncode, done.stderr) == (0, b"")
    if encoding != "ascii":  # click takes an ASCII terminal for one of UTF-8 that is not set up
        assert first.startswith("g -> ")
        assert "\\u65e5 \\udc80" in first
    assert any("\\u65e5 ->" in name for name in table)
