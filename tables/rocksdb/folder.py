"""A folder with a RocksDB: opening, reading ranges of keys, and classifying errors."""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self, cast

from rocksdict import AccessType, Rdict

from tables.rocksdb import options
from tables.rocksdb.empty_store import EmptyStore
from tables.rocksdb.errors import DamagedStoreError, fault_of, unwritable

log: Final = logging.getLogger("ringfence.table")

_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a folder with a random name is made in it


class RocksFolder:
    """A RocksDB that one process has open."""

    def __init__(
        self, path: Path, *, read_only: bool = False, indexed: bool = False, in_memory: bool = False
    ) -> None:
        """Open or create the folder.

        Args:
            path: The folder.
            read_only: Another process may have it open.
            indexed: Most lookups are for missing keys.
            in_memory: The files are in memory, and lost when the store is closed. ``path`` is not touched. rocksdict still needs a folder
                for a small file, of some hundred bytes.

        Raises:
            StateFolderError: The folder cannot be written.
            PrerequisiteError: Another process has it open.
            DamagedStoreError: RocksDB refuses the files.
        """
        self.path = path
        self.in_memory = in_memory
        self.damaged = False
        """Damage was found, which opening alone may not find again."""
        self.broken = False
        """A write failed. RocksDB refuses all later ones until it is opened again."""
        self._open = False
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        try:
            if read_only:
                self._db = Rdict(
                    str(path), options=options.options(indexed=indexed), access_type=AccessType.read_only()
                )
            elif in_memory:
                self._scratch = tempfile.TemporaryDirectory(prefix="ringfence-", dir=_memory_folder())
                self._db = Rdict(self._scratch.name, options=options.in_memory(indexed=indexed))
            else:
                path.mkdir(parents=True, exist_ok=True)
                _EMPTY.copy_to(path)
                self._db = Rdict(str(path), options=options.options(indexed=indexed))
        except OSError as error:  # mkdir: a file is in the way, or the parent cannot be written
            raise unwritable(path, error.strerror or str(error)) from error
        except Exception as error:  # rocksdict raises plain Exception for every fault of RocksDB
            raise fault_of(path, str(error)) from error
        self._open = True

    @classmethod
    def create_afresh(cls, path: Path, *, indexed: bool = False) -> Self:
        """Delete the folder and open an empty store. Raises as opening does."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            # A mount point stays, but its content must be deleted.
            if not path.is_dir() or any(path.iterdir()):
                raise unwritable(path, str(error.strerror)) from error
        return cls(path, indexed=indexed)

    def _entries(self, prefix: bytes, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield entries of a prefix, without it, from ``first`` on."""
        iterator = self._db.iter()
        try:
            iterator.seek(prefix + first)
            while (key := cast("bytes | None", iterator.key())) is not None:
                if not key.startswith(prefix):
                    return
                yield key[len(prefix) :], cast("bytes", iterator.value())
                iterator.next()
            try:
                iterator.status()  # an iterator that meets damage just ends
            except Exception as error:
                raise self._noted(error) from error
        finally:
            del iterator  # RocksDB keeps its lock while the trace of an exception holds the iterator

    def _many(self, keys: list[bytes]) -> list[bytes | None]:
        try:
            return cast("list[bytes | None]", self._db.get(cast("Any", keys)))
        except Exception as error:  # rocksdict raises plain Exception for every fault of RocksDB
            raise self._noted(error) from error

    def _noted(self, error: Exception) -> Exception:
        fault = fault_of(self.path, str(error))
        self.damaged = self.damaged or isinstance(fault, DamagedStoreError)
        return fault

    def close(self) -> None:
        """Close the files; a second call does nothing. Data that cannot be flushed is in the changelog."""
        if self._open:
            self._open = False
            try:
                if not self.in_memory:
                    self._db.close()
            except Exception as error:
                log.warning("%s could not be closed properly: %s", self.path, error)
            del self._db  # releases the lock, whatever close() raised
            if self._scratch is not None:
                self._scratch.cleanup()


def _memory_folder() -> str | None:
    """Return a system folder that is in memory; None = the default folder of temporary files."""
    return _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None


def _make_empty(folder: Path) -> None:
    Rdict(str(folder), options=options.options(indexed=False)).close()


_EMPTY: Final = EmptyStore(_make_empty)
