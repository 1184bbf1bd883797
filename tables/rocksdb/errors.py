"""Errors of the RocksDB of a lane. Deleting the folder fixes a damaged store, but not a full disk or missing permissions."""

from pathlib import Path
from typing import Final

from ringfence_kafka.errors import PrerequisiteError

_ENVIRONMENT: Final = (
    "permission denied", "operation not permitted", "read-only", "no space", "quota exceeded", "file too large",
    "too many open files", "not a directory",
)  # fmt: skip


class StateFolderError(PrerequisiteError):
    """The folder of a lane's state is unusable: a full or read-only disk, missing permissions, too many open files."""

    def __init__(self, folder: Path, fault: str, way_out: str) -> None:
        """Create the error. ``fault``: text of RocksDB or the system."""
        super().__init__(f"{folder} cannot be written: {fault}: {way_out}")
        said = fault.replace(str(folder), "").lower()
        self.folder = folder
        self.cause = next((item for item in _ENVIRONMENT if item in said), fault)
        """Cause without the path. All lanes on one disk have the same."""


class StaleEpochError(Exception):
    """A refused write of an older opening of the lane."""


class UntrustedError(Exception):
    """RocksDB does not fit the changelog; the text names the difference."""


class DamagedStoreError(Exception):
    """The files are damaged: delete them, and rebuild from the changelog."""


def fault_of(path: Path, fault: str) -> Exception:
    """Return the error for a fault: a damaged store, which a rebuild fixes, or an unusable folder. Paths in the text do not count."""
    said = fault.replace(str(path), "").lower()
    if "lock hold by" in said or "while lock file" in said:
        return PrerequisiteError(
            f"{path} is in use by another process: end it, or give this worker its own app.instance"
        )
    if any(item in said for item in _ENVIRONMENT):
        return unwritable(path, fault)
    return DamagedStoreError(f"{path}: {fault}")


def unwritable(path: Path, fault: str) -> StateFolderError:
    """Return the error of a folder that cannot be written, with the remedy."""
    way_out = "free space or allow writing, or point app.data_dir to another folder"
    if "too many open files" in fault.lower():
        way_out = "raise the limit of open files of this process (ulimit -n)"
    return StateFolderError(path, fault, way_out)
