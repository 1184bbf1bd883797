"""A folder with a RocksDB: opening, reading ranges of keys, and classifying errors."""

import functools
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self, cast

from rocksdict import AccessType, BlockBasedOptions, Cache, Env, Options, Rdict, WriteBufferManager

from tables.rocksdb.errors import DamagedStoreError, fault_of, unwritable

log: Final = logging.getLogger("ringfence.table")

_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a folder with a random name is made in it
_LAST: Final = "CURRENT"
"""File that names the manifest. A folder without it does not contain a RocksDB yet."""
_LEFT_OUT: Final = ("LOG", "LOCK", "OPTIONS-")
"""Files that RocksDB creates when it opens."""
_BUFFER_BYTES: Final = 8 * 2**20
_ARENA_BYTES: Final = 2**16
"""Growth step of a write buffer, in bytes. With RocksDB's default of 1/8 of the buffer, 64 nearly empty lanes take 64 MiB."""
BUFFERS_BYTES_MAX: Final = 32 * 2**20
"""Approximate limit of data that all stores of the process keep in memory before it is flushed, in bytes."""
CACHE_BYTES_MAX: Final = 32 * 2**20
"""Limit of the shared cache of file blocks, in bytes, for stores without an index."""
INDEXED_CACHE_MIB: Final = 16
"""Cache of each store with an index, in MiB."""


class EmptyStore:
    """Template of an empty store, created once for a process at the first copy."""

    def __init__(self, make: Callable[[Path], None]) -> None:
        """Prepare the template. ``make`` creates a RocksDB in an existing folder, and closes it."""
        self._make = make
        self._files: Mapping[str, bytes] = {}
        """Contents by name, in the order of writing."""

    def _made(self, beside: Path) -> Mapping[str, bytes]:
        with tempfile.TemporaryDirectory(prefix=".empty-", dir=beside) as name:
            folder = Path(name)
            self._make(folder)
            found = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        kept = {
            name: data
            for name, data in found.items()
            if not name.startswith(_LEFT_OUT) and (data or not name.endswith(".log"))
        }
        kept[_LAST] = kept.pop(_LAST)
        return kept

    def copy_to(self, folder: Path) -> None:
        """Copy the template into an existing empty folder. Does nothing if the folder has files, or the template cannot be created beside it."""
        if any(folder.iterdir()):
            return
        try:
            self._files = self._files or self._made(folder.parent)
        except OSError:
            return  # for example, the folder is a mount point
        for name, data in self._files.items():
            (folder / name).write_bytes(data)


class RocksFolder:
    """A RocksDB that one process has open."""

    def __init__(
        self, path: Path, *, read_only: bool = False, indexed: bool = False, in_memory: bool = False
    ) -> None:
        """Open or create the folder. ``read_only``: another process may have it open; ``indexed``: most lookups are for missing keys.

        ``in_memory``: the files are in memory, and lost when the store is closed. ``path`` is not touched. rocksdict still needs a folder for a
        small file, of some hundred bytes.

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
                    str(path), options=options(indexed=indexed), access_type=AccessType.read_only()
                )
            elif in_memory:
                memory = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
                self._scratch = tempfile.TemporaryDirectory(prefix="ringfence-", dir=memory)
                in_private_files = options(indexed=indexed)
                in_private_files.set_env(Env.mem_env())
                self._db = Rdict(self._scratch.name, options=in_private_files)
            else:
                path.mkdir(parents=True, exist_ok=True)
                _EMPTY.copy_to(path)
                self._db = Rdict(str(path), options=options(indexed=indexed))
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


def _make_empty(folder: Path) -> None:
    Rdict(str(folder), options=options(indexed=False)).close()


_EMPTY: Final = EmptyStore(_make_empty)


class _Shared:
    def __init__(self) -> None:
        self.buffers = WriteBufferManager(BUFFERS_BYTES_MAX, False)
        self.cache = Cache(CACHE_BYTES_MAX)


@functools.cache
def shared() -> _Shared:
    """Return the shared memory, created at the first call."""
    return _Shared()


def options(*, indexed: bool) -> Options:
    """Return options for a small store: a lane has some MiB, and a worker has many lanes. ``indexed``: lookups by ID are frequent."""
    found = Options(raw_mode=True)
    if indexed:
        # Bloom filters. RocksDB writes those of set_bloom_filter(), but never uses them. A later set of the block factory undoes this.
        found.optimize_for_point_lookup(INDEXED_CACHE_MIB)
    else:
        blocks = BlockBasedOptions()
        blocks.set_block_cache(shared().cache)
        found.set_block_based_table_factory(blocks)
    found.set_write_buffer_manager(shared().buffers)
    found.create_if_missing(create_if_missing=True)
    found.set_write_buffer_size(_BUFFER_BYTES)
    found.set_arena_block_size(_ARENA_BYTES)
    found.set_max_write_buffer_number(2)
    found.set_max_background_jobs(2)
    # By default each store would start 16 threads for a handful of files, and write statistics.
    found.set_max_file_opening_threads(1)
    found.set_stats_dump_period_sec(0)
    found.set_stats_persist_period_sec(0)
    found.set_keep_log_file_num(2)
    found.set_max_total_wal_size(2 * _BUFFER_BYTES)
    return found
