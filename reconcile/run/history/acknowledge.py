"""A person has looked at the last night: the next one begins where it ended."""

from pathlib import Path
from typing import Final

from reconcile.run.history.history import Run, RunHistory, seen_of
from reconcile.spark.files import Files, LocalFiles
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError

LAST: Final = 0
"""Whichever is the last."""


def here(settings: Settings, folder: str, number: int) -> int:
    """In a folder of this machine: without Spark, and without the cluster; returns the exit code.

    Raises:
        PrerequisiteError: no night is kept there.
        ConfigurationError: it is not the last one, or another application's.
    """
    if not Path(folder).is_dir():
        raise _no_night(folder)
    files = LocalFiles(folder)
    with files.locked():
        return acknowledge(settings, files, number)


def acknowledge(settings: Settings, files: Files, number: int) -> int:
    """Night ``number``, or :data:`LAST`; returns the exit code. Raises as :func:`here` does."""
    nights = RunHistory.load(files)
    nights.belong_to(settings.app.id)
    last = nights.last
    if last is None:
        raise _no_night(files.root)
    if number not in {LAST, last.number}:
        raise ConfigurationError(
            f"run {number} is not the last, that is {last.number} ({last.verdict}): look at it, and acknowledge that"
        )
    seen = nights.acknowledge()
    if seen is None:
        print("nothing to acknowledge: the last run was clean, or is acknowledged already")
    else:
        print(f"acknowledged run {seen.number} ({seen.verdict}): the next one begins where it ended")
    return 0


def when(files: Files, night: Run) -> str | None:
    """Return when somebody acknowledged a run, ISO 8601; None = nobody has."""
    return files.read(seen_of(night.number)).strip() if night.acknowledged else None


def _no_night(folder: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"no run is kept in {folder}: name the reconcile.state_dir of the runs, or run one first"
    )
