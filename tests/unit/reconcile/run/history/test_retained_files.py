"""Files of a run that must exist for a later one: without an accepted ID its duplicate looks lost."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from reconcile.run.history import id_store, retained_files
from reconcile.run.history.cut import AddressCut, Position, Span, TopicCut
from reconcile.run.history.history import Run, RunHistory
from reconcile.run.history.layout import file_of, ids_folder, results_folder
from reconcile.spark.files import LocalFiles
from ringfence_kafka.errors import PrerequisiteError

DAYS = ("2026-11-01", "2026-11-02", "2026-11-03")
TODAY = "2026-11-21"


def _cuts(*names: str, topic_id: str = "id") -> dict[str, AddressCut]:
    topics = {name: TopicCut(name, topic_id, [Span(0, 0, 0, 10, 10)]) for name in names}
    return {name: AddressCut(cut, cut, cut, cut, None, (0,)) for name, cut in topics.items()}


@pytest.fixture
def runs(tmp_path: Path) -> RunHistory:
    """Three; each saw IDs accepted at "a" and "b", and left something that waits."""
    files = LocalFiles(str(tmp_path))
    made = RunHistory(files)
    for number, day in enumerate(DAYS, 1):
        folders = [f"{ids_folder(day, number)}/address={name}" for name in "ab"]
        for folder in (*folders, f"{results_folder(number)}/ahead"):
            for part in range(2):
                files.write_text(f"{folder}/part-{part}.parquet", "rows")
        run = Run(number, number - 1 or None, day, "clean", accepted={"a": {0: 5}, "b": {0: 5}})
        run.positions = {name: Position("id", (0,), (10,)) for name in "ab"}
        run.rules = {"a": {"id_cache_size": 5}, "b": {"id_cache_size": 5_000}}
        run.leaves = retained_files.files_by_folder(files, day, number)
        made.commit(run)
    return made


def _accepted(runs: RunHistory, cuts: dict[str, AddressCut]) -> None:
    kept = RunHistory.load(runs.files)
    retained_files.refuse_missing(kept, kept.last, cuts)


def _refusal(runs: RunHistory, cuts: dict[str, AddressCut]) -> str:
    with pytest.raises(PrerequisiteError) as raised:
        _accepted(runs, cuts)
    return str(raised.value)


def test_a_folder_that_is_missing(runs: RunHistory, tmp_path: Path) -> None:
    """A missing folder or file is named, with the consequence and the way out; other addresses do not need it."""
    folder = f"{ids_folder(DAYS[0], 1)}/address=a"
    _accepted(runs, _cuts("a", "b"))
    shutil.rmtree(tmp_path / folder)

    said = _refusal(runs, _cuts("a", "b"))
    assert said.startswith(f"{tmp_path}/{folder} has 0 of the 2 Parquet files that run 1 wrote, so dupl")
    assert "LOST: restore it from a backup of reconcile.state_dir; without one name another" in said
    _accepted(runs, _cuts("b"))
    _accepted(runs, _cuts("a", topic_id="created again"))
    (tmp_path / ids_folder(DAYS[0], 1) / "address=b" / "part-1.parquet").unlink()
    shutil.rmtree(tmp_path / ids_folder(DAYS[1], 2))
    beside = "address=a has 0 of the 2 Parquet files that run 2 wrote (and 3 folders beside it lack some)"
    assert beside in _refusal(runs, _cuts("a", "b"))


def test_what_the_last_run_has_left(runs: RunHistory, tmp_path: Path) -> None:
    """A run without the last run's results would lose waiting inputs, but that run can be judged again. Any other is needed."""
    shutil.rmtree(tmp_path / results_folder(3))

    again = f"without one remove {tmp_path}/{file_of(3)}: that run is judged again"
    assert again in _refusal(runs, _cuts("a"))
    runs.files.remove(file_of(3))
    _accepted(runs, _cuts("a"))
    runs.files.remove(file_of(1))
    said = _refusal(runs, _cuts("a"))
    assert said.startswith(f"{tmp_path}/nights/000001.json is missing, and run 2 continues from that run")


def test_what_was_forgotten_is_not_missing(runs: RunHistory, tmp_path: Path) -> None:
    """IDs are recorded as forgotten before they are removed. A run that replaces a damaged one does not inherit that."""
    id_store.forget(runs, TODAY, 7, {})

    assert id_store.kept(runs.files) == {1: ["b"], 2: ["a", "b"], 3: ["a", "b"]}
    assert (tmp_path / "nights" / "000001.forgotten").read_text() == f"{ids_folder(DAYS[0], 1)}/address=a\n"
    _accepted(runs, _cuts("a", "b"))
    runs.commit(runs.finished[1])
    assert "address=a has 0 of the 2" in _refusal(runs, _cuts("a", "b"))


def test_an_address_that_has_another_name(runs: RunHistory, tmp_path: Path) -> None:
    """A renamed address has the files of earlier runs in the folders of its former name."""
    shutil.rmtree(tmp_path / ids_folder(DAYS[1], 2) / "address=a")
    runs.rename({"new": "a"})
    cuts = {"new": replace(_cuts("a")["a"], former="a")}

    with pytest.raises(PrerequisiteError, match="address=a has 0 of the 2"):
        retained_files.refuse_missing(runs, runs.settled_base(), cuts)
