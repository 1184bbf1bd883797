"""Files that runs leave in their folder; Spark is not started."""

import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from reconcile.run.history import id_store
from reconcile.run.history.history import Run, RunHistory
from reconcile.run.history.layout import ids_folder, results_folder
from reconcile.spark.files import LocalFiles, readable
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError


def _run(number: int) -> Run:
    return Run(number, number - 1 or None, "2026-11-20", "clean")


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    """A damaged run is named with the way out, and not reported as an error of the program.

    A run that replaces it is not acknowledged, even if the damaged one was.
    """
    files = LocalFiles(str(tmp_path))
    runs = RunHistory(files)
    runs.commit(replace(_run(1), verdict="anomalies"))
    runs.acknowledge()
    for text in ("", '{"format": 3, "num', "[]", "{}"):
        files.write_text("nights/000001.json", text)
        with pytest.raises(PrerequisiteError, match=r"nights/000001\.json is damaged: restore it"):
            RunHistory.load(files)

    files.remove("nights/000001.json")
    RunHistory.load(files).commit(replace(_run(1), verdict="anomalies"))
    last = RunHistory.load(files).last
    assert last is not None
    assert not last.acknowledged


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    """Remains of a crashed run are removed, and all other files in the folders stay."""
    runs = RunHistory(LocalFiles(str(tmp_path)), {1: _run(1)})
    of_crash = ["results/000002", "accepted/date=2026-11-21/night=2"]
    others = ["results/lost+found", "results/000001", "accepted/date=2026-11-20/night=1", "accepted/x/y"]
    for name in (*of_crash, *others):
        (tmp_path / name).mkdir(parents=True)
    id_store.sweep(runs)

    assert [name for name in of_crash if (tmp_path / name).exists()] == []
    assert [other for other in others if not (tmp_path / other).exists()] == []


def test_a_folder_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that refuses any operation is unusable, and not empty: a run over an empty one would begin at the first run."""
    files = LocalFiles(str(tmp_path))
    (tmp_path / ".lock").mkdir()
    (tmp_path / "file").mkdir()
    with pytest.raises(PrerequisiteError, match="cannot be used"), files.locked():
        pass
    with pytest.raises(PrerequisiteError, match=r"file cannot be read .*directory.*: restore it from a"):
        files.read_text("file")
    with pytest.raises(PrerequisiteError, match="cannot be used"):
        files.delete("file/" + "x" * 300)
    monkeypatch.setattr(Path, "iterdir", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(PrerequisiteError, match=r"cannot be used \(Permission denied\): make it writable"):
        files.names("")


def test_a_run_counts_when_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run counts only when all of it is on the disk. After a crash, a valid run without its IDs would end every later one."""
    files = LocalFiles(str(tmp_path))
    folders = (f"{ids_folder('2026-11-20', 1)}/address=a", f"{results_folder(1)}/ahead")
    parts = [f"{folder}/part.parquet" for folder in folders]
    for part in parts:
        (tmp_path / part).parent.mkdir(parents=True)
        (tmp_path / part).touch()
    settled: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        settled.append(str(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(tmp_path)))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    RunHistory(files).commit(_run(1))

    valid = settled.index("nights/.000001.json.part")
    above = {str(folder) for part in parts for folder in Path(part).parents}
    assert {*parts, *above} <= set(settled[:valid])
    assert {"nights", "."} <= set(settled[valid:])


def test_runs_of_another_cluster(tmp_path: Path) -> None:
    """Runs of another cluster are refused with both names, because all topics would look deleted."""
    runs = RunHistory(LocalFiles(str(tmp_path)))
    runs.commit(replace(_run(1), app="rf", cluster="first-cluster"))
    kept = RunHistory.load(runs.files)

    kept.belong_to("rf", "first-cluster")
    kept.belong_to("rf")
    with pytest.raises(ConfigurationError) as raised:
        kept.belong_to("rf", "second-cluster")
    assert str(raised.value).startswith(
        f"{tmp_path} has the runs of the Kafka cluster first-cluster, and kafka.bootstrap_servers leads to second-cluster: give"
    )
    assert "app.data_dir" in str(raised.value)
    with pytest.raises(ConfigurationError, match=r"has the runs of app\.id = 'rf', and this is 'other'"):
        kept.belong_to("other", "first-cluster")


def test_a_path_that_spark_reads_as_a_pattern(tmp_path: Path) -> None:
    """A path that Spark reads as a pattern is refused. Spark would not find its own files, or find others."""
    for name in ("br[ack]et", "a{b,c}", "st*r", "wh?t", "back\\slash"):
        with pytest.raises(
            ConfigurationError, match=r"as a pattern: name another folder as reconcile\.state"
        ):
            readable(str(tmp_path / name))
        assert readable("s3a://bucket/nights") == "s3a://bucket/nights"
        assert readable(str(tmp_path / "sp ace, ü%20#:")) == str(tmp_path / "sp ace, ü%20#:")
