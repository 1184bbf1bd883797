import json
from pathlib import Path

import pytest

from ringfence_kafka.config import schema
from tests.support.terminal import entered


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ringfence.toml"
    path.write_text('[[addresses]]\nname = "orders"\nlanes = 1\n[[addresses]]\nname = "a*"\n')
    return path


def test_show(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each value stands on a line of its own, with its origin; ``--changed`` leaves the defaults out."""
    assert entered("config", "schema") == 0
    assert json.loads(capsys.readouterr().out) == schema.document()
    arguments = ("config", "show", "--config", str(file), "--bootstrap-server", "k:1")
    assert entered(*arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"app.web_port = 6066{' ' * 43}# default" in lines
    assert entered(*arguments, "--changed") == 0
    changed = capsys.readouterr().out.splitlines()
    assert [line.split(" # ")[1] for line in changed] == ["--bootstrap-server", f"{file}:3", f"{file}:2"]
    assert set(changed) < set(lines)
    assert entered(*arguments, "--json") == 0
    values = json.loads(capsys.readouterr().out)
    assert {"key": "addresses[orders].lanes", "value": 1, "origin": f"{file}:3"} in values


def test_check(file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A good file is ok, with all that was read; nothing listens at its broker."""
    monkeypatch.setenv("RINGFENCE_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert entered("config", "check", "--config", str(file)) == 0
    said = capsys.readouterr()
    assert said.err == f"next: ringfence topics check --config {file}\n"
    assert said.out.splitlines() == [
        f"{file} with RINGFENCE_KAFKA__BOOTSTRAP_SERVERS: ok",
        "  cluster: 127.0.0.1:1 (PLAINTEXT)",
        "  addresses: orders",
        "  patterns: a*",
        "  bridges: none",
        "  cluster connections: none",
    ]
    file.write_text("")
    assert entered("config", "check", "--config", str(file)) == 0
    assert "next: add an [[addresses]] entry" in capsys.readouterr().out


def test_check_of_a_bad_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bad file ends with exit code 2, and every error has the whole range or the characters in words."""
    file.write_text(
        '[app]\nsession_timeout = 5\nweb_name = "a b"\n'
        '[[cluster_connections]]\nname = "a.b"\nthis = "a"\naddresses = ["x"]\nmembers = []\n'
    )
    assert entered("config", "check", "--config", str(file)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.removeprefix("ringfence: ").splitlines() == [
        f"{file}: app.session_timeout = 5: must be 6 to 90 seconds",
        f"{file}: app.web_name = 'a b': use letters, digits, dots, underscores and hyphens, without a port",
        f"{file}: cluster_connections[a.b].name = 'a.b': use letters, digits, underscores and hyphens",
    ]
