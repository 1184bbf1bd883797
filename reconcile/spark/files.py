"""Small files beside Spark's large ones, in a local folder. For other file systems see hadoop_files.py."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from ringfence_kafka.errors import ConfigurationError, PrerequisiteError, RingfenceError

if TYPE_CHECKING:
    from reconcile.spark.hadoop_files import HadoopFiles

Files: TypeAlias = Union["LocalFiles", "HadoopFiles"]
"""Files of a folder. Names are relative to it."""
_PROOF = "_proof"
_LIBRARY = "add its library to spark.jars.packages in Spark's spark-defaults.conf"
_WAYS_OUT = {
    "No space": "make room",
    "ClassNotFoundException": _LIBRARY,
    "No FileSystem for scheme": _LIBRARY,
    "UnknownHost": "correct its name",
}
_PATTERN = frozenset("{}[]*?\\")


class BusyError(RingfenceError):
    """Another run works in the folder."""


def is_local(root: str, master: str) -> bool:
    """Return whether a folder is on this machine: a path without a scheme, if Spark runs here."""
    return master.startswith("local") and "://" not in root


def named(root: str) -> None:
    """Raise ConfigurationError if a folder is not named: in a script the variable may be empty."""
    if not root.strip():
        raise ConfigurationError(f"--out {root!r} names no folder: leave it out, or name one")


def apart(out: str, state: str) -> None:
    """Raise ConfigurationError if results go into the state folder, where runs remove other files."""
    places = [_place(name) for name in (out, state)]
    if places[0] == places[1] or places[0].startswith(f"{places[1]}/"):
        raise ConfigurationError(
            f"--out {out} is in reconcile.state_dir ({state}), where runs remove other files: name another "
            "folder. The findings of a run are kept there anyway, in results/"
        )


def _place(root: str) -> str:
    scheme, _, path = root.rpartition("://")
    if scheme not in {"", "file"}:
        return root.rstrip("/")
    return str(Path(path).resolve())


def readable(root: str) -> str:
    """Return the folder. Raise ConfigurationError if Spark would read its path as a pattern."""
    path = root if "://" in root else str(Path(root).absolute())
    if found := sorted(_PATTERN & set(path)):
        raise ConfigurationError(
            f"{path}: Spark reads a path with {' '.join(found)} as a pattern: name another folder as reconcile.state_dir"
        )
    return root


def proved(files: Files) -> Files:
    """Write and delete a trial file, so that a refusal comes before the work; return the folder."""
    files.write_text(_PROOF, "")
    files.delete(_PROOF)
    return files


class LocalFiles:
    """Files on this machine."""

    def __init__(self, root: str) -> None:
        """Create the folder. Raises PrerequisiteError if it cannot be used."""
        self._root = Path(root).absolute()
        self.root = str(self._root)
        with _usable(root):
            self._root.mkdir(parents=True, exist_ok=True)

    def at(self, *parts: str) -> str:
        """Return the full path for Spark."""
        return f"file://{self._root.joinpath(*parts)}"  # Hadoop expects the path without URL quoting

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; empty if it does not exist."""
        path = self._root / folder
        with _usable(path):
            names = [file.name for file in path.iterdir()] if path.is_dir() else []
        return sorted(name for name in names if not name.startswith("."))

    def read_text(self, name: str) -> str:
        """Return the text of a file."""
        try:
            return (self._root / name).read_text("utf-8")
        except OSError as error:
            raise unreadable(str(self._root / name), error.strerror or str(error)) from error

    def write_text(self, name: str, text: str) -> None:
        """Write a file atomically and durably."""
        target = self._root / name
        made = target.with_name(f".{target.name}.part")
        with _usable(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with made.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            made.replace(target)
            self._to_disk(target.parent)

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its content."""
        path = self._root / name
        with _usable(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Delete a file if it exists, but never a folder."""
        path = self._root / name
        with _usable(path):
            path.unlink(missing_ok=True)

    def sync(self, folder: str) -> None:
        """Force the content of a folder, and the names above it, to the disk."""
        top = self._root / folder
        with _usable(top):
            for path in (top, *top.rglob("*")) if top.is_dir() else ():
                _to_disk(path)
            self._to_disk(top.parent)

    def _to_disk(self, folder: Path) -> None:
        """Force the names in a folder, and its own name in the folders above, to the disk."""
        for path in (folder, *folder.parents):
            if path.is_dir():
                _to_disk(path)
            if path == self._root:
                return

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder. Raises BusyError if another run works in it."""
        with _usable(self._root):
            opened = (self._root / ".lock").open("w")
        with opened as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BusyError(
                    f"another reconcile works in {self._root}: wait for its end, or give this one a state_dir of its own"
                ) from error
            yield


@contextlib.contextmanager
def _usable(path: Path | str) -> Iterator[None]:
    """Raise PrerequisiteError if the system refuses a path."""
    try:
        yield
    except OSError as error:
        raise unusable(str(path), error.strerror or str(error)) from error


def _to_disk(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def unreadable(name: str, why: str) -> PrerequisiteError:
    """Return the error for a required file that cannot be read. ``why``: message of the system."""
    way_out = "make it readable" if "ermission" in why else "restore it from a backup"
    return PrerequisiteError(f"{name} cannot be read ({why}): {way_out}")


def unusable(name: str, why: str) -> PrerequisiteError:
    """Return the error for a file or folder that cannot be used. ``why``: message of the system."""
    way_out = next((advice for mark, advice in _WAYS_OUT.items() if mark in why), "make it writable")
    return PrerequisiteError(f"{name} cannot be used ({why}): {way_out}, or name another folder")
