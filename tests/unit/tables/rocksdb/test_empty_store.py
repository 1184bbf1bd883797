from contextlib import closing
from pathlib import Path

import pytest

from tables.rocksdb import folder as rocks_folder
from tables.rocksdb.errors import DamagedStoreError
from tables.rocksdb.folder import EmptyStore
from tables.rocksdb.store import Store


def test_made_once_for_all(tmp_path: Path) -> None:
    """Each copy of the empty store is independent, even after it is opened again."""
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        rocks_folder._make_empty(folder)

    empty, names = EmptyStore(make), ("a", "b", "c")
    for name in names:
        (tmp_path / name).mkdir()
        empty.copy_to(tmp_path / name)
        with closing(Store(tmp_path / name)) as store:
            store._db[b"key"] = name.encode()
    for name in names:
        with closing(Store(tmp_path / name)) as store:
            assert store._db[b"key"] == name.encode()

    assert len(made) == 1
    assert not made[0].exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == list(names)


def test_what_is_there_stays(tmp_path: Path) -> None:
    """A store that holds something is not written over; nor is a folder with something else in it."""
    with closing(Store(tmp_path / "a")) as first:
        first._db[b"key"] = b"value"
    with closing(Store(tmp_path / "a")) as second:
        assert second._db.get(b"key") == b"value"
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "note").write_text("mine")
    EmptyStore(rocks_folder._make_empty).copy_to(tmp_path / "b")

    assert [path.name for path in (tmp_path / "b").iterdir()] == ["note"]


@pytest.mark.parametrize("whole", range(4))
def test_half_a_copy(tmp_path: Path, whole: int) -> None:
    """A store whose copying was cut short either opens empty or reports damage, and nothing else."""
    path = tmp_path / "a"
    path.mkdir()
    for number, (name, data) in enumerate(EmptyStore(rocks_folder._make_empty)._made(tmp_path).items()):
        (path / name).write_bytes(data if number < whole else data[: len(data) // 2])
        if number >= whole:
            break
    try:
        found = Store(path)
    except DamagedStoreError:
        found = Store.create_afresh(path)
    with closing(found):
        assert found.state() is None
