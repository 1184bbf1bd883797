"""Files of an empty RocksDB. A new store starts as a copy, because creating one waits ten times for the disk.

The copy is not flushed. If the machine loses it, the store does not open, and is rebuilt from the changelog.
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

_LAST: Final = "CURRENT"
"""File that names the manifest. A folder without it does not contain a RocksDB yet."""
_LEFT_OUT: Final = ("LOG", "LOCK", "OPTIONS-")
"""Files that RocksDB creates when it opens."""


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
        """Copy the template into an existing empty folder. Does nothing if the folder has files, or the template cannot be created beside it.

        Raises:
            OSError: The folder cannot be written.
            Exception: RocksDB fails to create the template.
        """
        if any(folder.iterdir()):
            return
        try:
            self._files = self._files or self._made(folder.parent)
        except OSError:
            return  # for example, the folder is a mount point
        for name, data in self._files.items():
            (folder / name).write_bytes(data)
