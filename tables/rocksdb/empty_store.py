"""The files of an empty RocksDB: a new store begins as a copy, since making one waits ten times for the disk.

Nothing waits for the copy. If the machine loses it, the store cannot be opened and is built again from the changelog.
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

_LAST: Final = "CURRENT"
"""File that names the manifest: without it a folder holds no RocksDB yet."""
_LEFT_OUT: Final = ("LOG", "LOCK", "OPTIONS-")
"""Files that RocksDB makes when it opens."""


class EmptyStore:
    """Made once for a process, when the first copy is wanted."""

    def __init__(self, make: Callable[[Path], None]) -> None:
        """``make`` makes a RocksDB in a folder that is there, and closes it."""
        self._make = make
        self._files: Mapping[str, bytes] = {}
        """Name and content, in the order in which they are to be written."""

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
        """Copy it into an existing folder; do nothing if that is not empty, or if the first copy cannot be made beside it.

        Raises:
            OSError: it cannot be written.
            Exception: of RocksDB's, which makes the first one beside it.
        """
        if any(folder.iterdir()):
            return
        try:
            self._files = self._files or self._made(folder.parent)
        except OSError:
            return  # such as where the folder is a mount point of its own
        for name, data in self._files.items():
            (folder / name).write_bytes(data)
