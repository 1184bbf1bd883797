"""Small files where Spark keeps its large ones: in a local folder; elsewhere as hadoop_files.py has it."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from ringfence_kafka.errors import ConfigurationError, PrerequisiteError, RingfenceError

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


class Files(Protocol):
    """A folder and what is in it; names are relative to it."""

    @property
    def root(self) -> str:
        """The folder, as a person names it."""
        ...

    def at(self, *parts: str) -> str:
        """The whole path, as Spark takes it."""
        ...

    def names(self, folder: str) -> list[str]:
        """What is in a folder; nothing if it does not exist."""
        ...

    def read(self, name: str) -> str:
        """A file's text."""
        ...

    def write(self, name: str, text: str) -> None:
        """Make a file: it is there whole, or not at all."""
        ...

    def delete(self, name: str) -> None:
        """A file, or a folder with all that is in it."""
        ...

    def remove(self, name: str) -> None:
        """A file, which may be missing; never a folder."""
        ...

    def settle(self, folder: str) -> None:
        """What is in a folder is on the disk when this returns, whoever wrote it."""
        ...

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Alone in the folder, as far as that can be known here."""
        ...


def is_local(root: str, master: str) -> bool:
    """Whether a folder is one of this machine: a bare path is, where Spark runs here; elsewhere it is the cluster's."""
    return master.startswith("local") and "://" not in root


def named(root: str) -> None:
    """See that a folder is named: in a script the variable may be empty.

    Raises:
        ConfigurationError: it is not.
    """
    if not root.strip():
        raise ConfigurationError(f"--out {root!r} names no folder: leave it out, or name one")


def apart(out: str, state: str) -> None:
    """See that results are asked for in a folder of their own: what stands among the runs is removed, or taken for theirs.

    Raises:
        ConfigurationError: it is that of the runs, or within it.
    """
    places = [_place(name) for name in (out, state)]
    if places[0] == places[1] or places[0].startswith(f"{places[1]}/"):
        raise ConfigurationError(
            f"--out {out} is in reconcile.state_dir ({state}), where runs remove what is not theirs: name another folder. What a "
            "run has found is kept there anyway, in results/"
        )


def _place(root: str) -> str:
    scheme, _, path = root.rpartition("://")
    if scheme not in {"", "file"}:
        return root.rstrip("/")
    return str(Path(path).resolve())


def readable(root: str) -> str:
    """A folder that Spark reads again.

    Raises:
        ConfigurationError: its path has what Spark takes for a pattern, which would match others, or not the folder itself.
    """
    path = root if "://" in root else str(Path(root).absolute())
    if found := sorted(_PATTERN & set(path)):
        raise ConfigurationError(
            f"{path}: Spark reads a path with {' '.join(found)} as a pattern: name another folder as reconcile.state_dir"
        )
    return root


def proved(files: Files) -> Files:
    """The folder, once a file could be made in it and taken away: what would refuse results is told before the work.

    Raises:
        PrerequisiteError: it refuses.
    """
    files.write(_PROOF, "")
    files.delete(_PROOF)
    return files


class LocalFiles:
    """Of this machine."""

    def __init__(self, root: str) -> None:
        """Raises PrerequisiteError: it cannot be used."""
        self._root = Path(root).absolute()
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unusable(root, error.strerror or str(error)) from error

    @property
    def root(self) -> str:
        """The folder, as a person names it."""
        return str(self._root)

    def at(self, *parts: str) -> str:
        """The whole path, as Spark takes it."""
        return f"file://{self._root.joinpath(*parts)}"  # Hadoop takes it as it is, unquoted

    def names(self, folder: str) -> list[str]:
        """What is in a folder; nothing if it does not exist."""
        path = self._root / folder
        try:
            names = [file.name for file in path.iterdir()] if path.is_dir() else []
        except OSError as error:
            raise unusable(str(path), error.strerror or str(error)) from error
        return sorted(name for name in names if not name.startswith("."))

    def read(self, name: str) -> str:
        """A file's text."""
        try:
            return (self._root / name).read_text("utf-8")
        except OSError as error:
            raise unreadable(str(self._root / name), error.strerror or str(error)) from error

    def write(self, name: str, text: str) -> None:
        """Make a file: it is there whole, or not at all, also when the machine stops."""
        target = self._root / name
        made = target.with_name(f".{target.name}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with made.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            made.replace(target)
            self._to_disk(target.parent)
        except OSError as error:
            raise unusable(str(target), error.strerror or str(error)) from error

    def delete(self, name: str) -> None:
        """A file, or a folder with all that is in it."""
        path = self._root / name
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise unusable(str(path), error.strerror or str(error)) from error

    def remove(self, name: str) -> None:
        """A file, which may be missing; never a folder."""
        path = self._root / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise unusable(str(path), error.strerror or str(error)) from error

    def settle(self, folder: str) -> None:
        """What is in a folder is on the disk when this returns, whoever wrote it, and so are the folders above it."""
        top = self._root / folder
        try:
            for path in (top, *top.rglob("*")) if top.is_dir() else ():
                _to_disk(path)
            self._to_disk(top.parent)
        except OSError as error:
            raise unusable(str(top), error.strerror or str(error)) from error

    def _to_disk(self, folder: Path) -> None:
        """The names in a folder, and its own in those above."""
        for path in (folder, *folder.parents):
            if path.is_dir():
                _to_disk(path)
            if path == self._root:
                return

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Alone in the folder.

        Raises:
            BusyError: somebody else is in it.
        """
        try:
            opened = (self._root / ".lock").open("w")
        except OSError as error:
            raise unusable(str(self._root), error.strerror or str(error)) from error
        with opened as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BusyError(
                    f"another reconcile works in {self._root}: wait for its end, or give this one a state_dir of its own"
                ) from error
            yield


def _to_disk(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def unreadable(name: str, why: str) -> PrerequisiteError:
    """What to raise of a file that is to be there; ``why`` as the system says it."""
    way_out = "make it readable" if "ermission" in why else "restore it from a backup"
    return PrerequisiteError(f"{name} cannot be read ({why}): {way_out}")


def unusable(name: str, why: str) -> PrerequisiteError:
    """What to raise of a file or folder; ``why`` as the system says it."""
    way_out = next((told for mark, told in _WAYS_OUT.items() if mark in why), "make it writable")
    return PrerequisiteError(f"{name} cannot be used ({why}): {way_out}, or name another folder")
