"""What nights leave in their folder, as files: no Spark is started."""

from pathlib import Path

import pytest

from conf.errors import PrerequisiteError
from reconcile.files import LocalFiles
from reconcile.nights import Night, Nights


def _night(number: int) -> Night:
    return Night(number, number - 1 or None, "2026-11-20", "clean", {}, {}, {}, {}, {})


@pytest.mark.parametrize("text", ["", '{"format": 3, "num', "[]", "{}"])
def test_a_damaged_night_is_named(tmp_path: Path, text: str) -> None:
    """With the way out, and not as a fault of the program."""
    files = LocalFiles(str(tmp_path))
    files.write("nights/000001.json", text)

    with pytest.raises(PrerequisiteError, match=r"nights/000001\.json is damaged: restore it"):
        Nights.load(files)


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    """What a crashed run has left is removed; anything else in the folders is nobody's business."""
    nights = Nights(LocalFiles(str(tmp_path)), {1: _night(1)})
    of_crash = ["results/000002", "accepted/date=2026-11-21/night=2"]
    others = ["results/lost+found", "results/000001", "accepted/date=2026-11-20/night=1", "accepted/x/y"]
    for each in (*of_crash, *others):
        (tmp_path / each).mkdir(parents=True)
    nights.sweep()

    assert [each for each in of_crash if (tmp_path / each).exists()] == []
    assert [each for each in others if not (tmp_path / each).exists()] == []


def test_a_folder_that_refuses(tmp_path: Path) -> None:
    """Whatever is wanted of it, a line says that it cannot be used."""
    files = LocalFiles(str(tmp_path))
    (tmp_path / ".lock").mkdir()
    (tmp_path / "file").mkdir()

    with pytest.raises(PrerequisiteError, match="cannot be used"), files.locked():
        pass
    with pytest.raises(PrerequisiteError, match=r"file cannot be used .*directory"):
        files.read("file")
    with pytest.raises(PrerequisiteError, match="cannot be used"):
        files.delete("file/" + "x" * 300)
