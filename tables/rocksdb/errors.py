"""Errors of the RocksDB of a lane: deleting the folder fixes a damaged store, and not a full disk or missing rights."""

from pathlib import Path
from typing import Final

from ringfence_kafka.errors import PrerequisiteError

_ENVIRONMENT: Final = (
    "permission denied", "operation not permitted", "read-only", "no space", "quota exceeded", "file too large",
    "too many open files", "not a directory",
)  # fmt: skip


class StateFolderError(PrerequisiteError):
    """The folder of a lane's state cannot be used: a full or read-only disk, missing rights, no more open files."""

    def __init__(self, folder: Path, fault: str, way_out: str) -> None:
        """``fault``: what RocksDB or the system says of it."""
        super().__init__(f"{folder} cannot be written: {fault}: {way_out}")
        said = fault.replace(str(folder), "").lower()
        self.cause = next((item for item in _ENVIRONMENT if item in said), fault)
        """The same for all lanes on one disk."""


class StaleEpochError(Exception):
    """A write of an older opening of the lane: refused."""


class UntrustedError(Exception):
    """RocksDB does not fit the changelog; the text says where."""


class DamagedStoreError(Exception):
    """The files are damaged: delete and rebuild from the changelog."""


def fault_of(path: Path, fault: str) -> Exception:
    """Tell apart what deleting the folder would fix and what it would not. A path in the text does not count."""
    said = fault.replace(str(path), "").lower()
    if "lock hold by" in said or "while lock file" in said:
        return PrerequisiteError(
            f"{path} is in use by another process: end it, or give this worker its own app.instance"
        )
    if any(item in said for item in _ENVIRONMENT):
        return unwritable(path, fault)
    return DamagedStoreError(f"{path}: {fault}")


def unwritable(path: Path, fault: str) -> StateFolderError:
    """Return the error of a folder that cannot be written, with the way out."""
    way_out = "free space or allow writing, or point app.data_dir to another folder"
    if "too many open files" in fault.lower():
        way_out = "raise the limit of open files of this process (ulimit -n)"
    return StateFolderError(path, fault, way_out)
