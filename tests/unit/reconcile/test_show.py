"""``ringfence reconcile show``: anomalies of a kept run, without Spark and without the cluster."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import click
import pytest

from app import cli
from reconcile import show
from reconcile.run.history.history import Run, RunHistory
from reconcile.run.history.layout import results_folder
from reconcile.spark.files import LocalFiles
from ringfence_kafka.process import command_line
from tests.support.reconcile import figures


@pytest.fixture
def config(tmp_path: Path) -> str:
    state = tmp_path / "data" / "reconcile"
    files = LocalFiles(str(state))
    files.write_text(f"{results_folder(3)}/figures.json", figures.run().to_json())
    run = Run(3, None, "2026-11-21", "anomalies", app="shop")
    RunHistory(files).commit(run)
    path = tmp_path / "ringfence.toml"
    path.write_text(f'[app]\nid = "shop"\ndata_dir = "{tmp_path / "data"}"\n[[addresses]]\nname = "orders"\n')
    return str(path)


def _run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        command_line.run(cli.cli, ["reconcile", *arguments], "ringfence")
    return caught.value.code


def _document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert _run("show", "--json", *arguments) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_groups_and_rows(tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All that is known without Spark is in groups, with what to do, and the way to single ones, each with its place.

    An acknowledged run has the time of it.
    """
    finding = figures.run().addresses[0].findings[0]

    assert _run("show", "--config", config) == 0
    groups = capsys.readouterr().out.splitlines()
    assert _run("show", "--config", config, "--limit", "1", "--rows") == 0
    rows = capsys.readouterr().out

    assert "LOST in orders: 2 rows" in groups
    assert any(line.startswith("  do: send it again") for line in groups)
    assert groups[-2:] == ["run 3 (anomalies): 16 of 16 anomalies shown", "--rows shows them one by one"]
    assert f"{finding.anomaly}  {finding.topic}/{finding.partition}/{finding.offset}" in rows
    assert finding.detail in rows
    assert "run 3 (anomalies): 1 of " in rows
    before = _document(capsys, "--config", config)
    RunHistory.load(LocalFiles(str(tmp_path / "data" / "reconcile"))).acknowledge()
    after = _document(capsys, "--config", config)
    _run("show", "--config", config)
    assert (before["acknowledged"], before["acknowledged_at"], after["acknowledged"]) == (False, None, True)
    passed = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(after["acknowledged_at"])
    assert passed < dt.timedelta(minutes=5)
    day = after["acknowledged_at"][:16].replace("T", " ")
    assert f"run 3 (anomalies, acknowledged {day} UTC): " in capsys.readouterr().out


def test_csv_into_a_file(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All rows, with nothing else in the file or on standard output."""
    assert _run("show", "--config", config, "--csv", str(tmp_path / "found.csv")) == 0
    beside = capsys.readouterr()
    assert _run("show", "--config", config, "--csv", "-", "--anomaly", "lost") == 0
    out = capsys.readouterr().out

    assert len((tmp_path / "found.csv").read_text().splitlines()) == 17
    assert (beside.out, beside.err) == ("", "run 3 (anomalies): 16 of 16 anomalies shown\n")
    assert len(out.splitlines()) == 3
    assert _run("show", "--config", config, "--csv", "-", "--json") == 2


def test_pages(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Pages have each anomaly once, and each names the next one. One anomaly has only its own."""
    document = _document(capsys, "--config", config, "--anomaly", "lost")
    assert [item["anomaly"] for item in document["anomalies"]] == ["LOST"] * 2
    assert (document["total"], document["run"], document["verdict"]) == (2, 3, "anomalies")
    rows = [
        row
        for page in ("1", "2", "3", "4")
        for row in _document(capsys, "--config", config, "--limit", "6", "--page", page)["anomalies"]
    ]
    assert rows == _document(capsys, "--config", config)["anomalies"]
    assert _run("show", "--config", config, "--rows", "--limit", "6", "--page", "2") == 0
    shown, following, rest = capsys.readouterr().out.splitlines()[-3:]
    assert shown == "run 3 (anomalies): 6 of 16 anomalies shown, page 2 of 3"
    assert (following, rest) == ("--page 3 shows the next ones", "--limit 16 shows all")
    assert _run("show", "--config", config, "--rows", "--limit", "6", "--page", "3") == 0
    assert "shows the next" not in capsys.readouterr().out
    assert _run("show", "--config", config, "--page", "2") == 2


def test_what_is_not_there(tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of these ends with 2, and is named with the way out."""
    text, state = Path(config).read_text(), tmp_path / "data" / "reconcile"
    other, empty = tmp_path / "other.toml", tmp_path / "empty.toml"
    other.write_text(text.replace('"shop"', '"mine"'))
    empty.write_text(text.replace(f"{tmp_path / 'data'}", f"{tmp_path / 'none'}"))
    RunHistory(LocalFiles(str(state))).commit(Run(2, None, "2026-11-01", "anomalies", app="shop"))
    gone = f"the results of run 2 are not in {state}/results any more: they are kept for reconcile.keep_days"
    complaints = {
        ("show", "--run", "9", "--config", config): "--run 9: no such run is kept in",
        ("show", "--anomaly", "LATE", "--config", config): "is not one of",
        ("show", "--limit", "0", "--config", config): "--limit",
        ("show", "--run", "2", "--config", config): gone,
        ("show", "--config", str(other)): "has the runs of app.id = 'shop', and this is 'mine'",
        ("show", "--config", str(empty)): "no run is kept in",
        ("--config", config, "show"): "write --config after 'show'",
    }

    for arguments, complaint in complaints.items():
        assert _run(*arguments) == 2
        said = capsys.readouterr().err
        assert complaint in said
        assert said.endswith("there are those of 3\n") == (complaint == gone)


def test_damaged_results(tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged file is named with the way out, and is neither an internal error nor a matter of permissions."""
    file = tmp_path / "data" / "reconcile" / results_folder(3) / "figures.json"
    for damage in (b"", b"{}", b"[]", b'{"addresses": [{}], "advice": []}', b"\xff\xfe", None):
        file.unlink() if damage is None else file.write_bytes(damage)

        assert _run("show", "--config", config) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"ringfence: {file} {'cannot be read' if damage is None else 'is damaged'} (")
        assert "restore it from a backup" in said
        assert "internal error" not in said


def test_a_pager_where_the_screen_is_too_small(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setattr(click, "echo_via_pager", asked.append)
    show.paged(["a line"] * 10)
    assert (asked, len(capsys.readouterr().out.splitlines())) == ([], 10)
    show.paged(["a line"] * 24)
    assert (len(asked), capsys.readouterr().out) == (1, "")
