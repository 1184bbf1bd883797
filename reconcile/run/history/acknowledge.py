"""Acknowledges the last run, so that the next run begins where it ended."""

from pathlib import Path
from typing import Final

from reconcile.run.history.history import Run, RunHistory
from reconcile.run.history.layout import seen_of
from reconcile.spark.files import Files, LocalFiles
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError

LAST: Final = 0  # stands for the number of the last run


def here(settings: Settings, folder: str, number: int) -> Run:
    """Acknowledge a run in a local folder, without Spark and the cluster; return the last run.

    Raises:
        PrerequisiteError: The folder has no run.
        ConfigurationError: The run is not the last, or belongs to another application.
    """
    if not Path(folder).is_dir():
        raise no_run(folder)
    files = LocalFiles(folder)
    with files.locked():
        return acknowledge(settings, files, number)


def acknowledge(settings: Settings, files: Files, number: int) -> Run:
    """Acknowledge run ``number``, or :data:`LAST`; return the last run. Raises the errors of :func:`here`."""
    runs = RunHistory.load(files)
    runs.belong_to(settings.app.id)
    last = runs.last
    if last is None:
        raise no_run(files.root)
    if number not in {LAST, last.number}:
        raise ConfigurationError(
            f"run {number} is not the last, that is {last.number} ({last.verdict}): look at it, and acknowledge that"
        )
    seen = runs.acknowledge()
    if seen is None:
        print("nothing to acknowledge: the last run was clean, or is acknowledged already")
    else:
        print(f"acknowledged run {seen.number} ({seen.verdict}): the next one begins where it ended")
    return seen or last


def when(files: Files, run: Run) -> str | None:
    """Return the time at which a run was acknowledged (ISO 8601); None = not acknowledged."""
    return files.read_text(seen_of(run.number)).strip() if run.acknowledged else None


def no_run(folder: str) -> PrerequisiteError:
    """Return the error for a folder without runs."""
    return PrerequisiteError(
        f"no run is kept in {folder}: name the reconcile.state_dir of the runs, or run one first"
    )
