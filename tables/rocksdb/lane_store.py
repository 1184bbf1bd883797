"""RocksDB of a lane over all its openings: on disk or in memory, open or closed."""

from pathlib import Path

from tables.codec import FormatError
from tables.rocksdb.errors import DamagedStoreError, UntrustedError
from tables.rocksdb.store import Store, StoredState


class LaneStore:
    """Opens and closes the RocksDB of one lane."""

    def __init__(self, path: Path, *, indexed: bool) -> None:
        """Create a closed store. ``indexed``: it contains the index ID → sequence too."""
        self.path = path
        self.in_memory = False
        """Whether its files are in memory, because the folder cannot be written."""
        self.current: Store | None = None
        """None = closed."""
        self._indexed = indexed

    @property
    def broken(self) -> bool:
        """Whether a write has failed since it was opened."""
        return self.current is not None and self.current.broken

    def keep_in_memory(self, wanted: bool) -> None:
        """Choose whether the next opening keeps the files in memory or in the folder."""
        if wanted != self.in_memory:
            self.close()
            self.in_memory = wanted

    def sound(self) -> Store:
        """Return the open store, or the one on disk if a write to the open one failed.

        Raises DamagedStoreError if files are damaged, and UntrustedError if the build of the store did not finish.
        """
        if self.current is not None and self.current.damaged:
            raise DamagedStoreError(f"{self.path}: damage was found while it was in use")
        if self.broken:
            self.close()
        if self.current is None:
            self.current = Store(self.path, indexed=self._indexed, in_memory=self.in_memory)
        if self.current.unfinished:
            raise UntrustedError("it was not built completely")
        return self.current

    def stored(self) -> StoredState | None:
        """Return the state that RocksDB reflects; None = empty or unreadable. Raises PrerequisiteError if the folder is unusable."""
        try:
            return self.sound().state()
        except (UntrustedError, FormatError, DamagedStoreError):
            return None

    def renew(self) -> Store:
        """Return an empty store. A store in memory keeps the folder's content."""
        self.close()
        if self.in_memory:
            self.current = Store(self.path, indexed=self._indexed, in_memory=True)
        else:
            self.current = Store.create_afresh(self.path, indexed=self._indexed)
        return self.current

    def opened(self) -> Store:
        """Return the open store."""
        if self.current is None:
            raise AssertionError("the table is closed")
        return self.current

    def close(self) -> None:
        """Close the store; a second call does nothing."""
        if self.current is not None:
            self.current.close()
            self.current = None
