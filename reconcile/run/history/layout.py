"""Files and folders of runs below ``reconcile.state_dir``.

::

    nights/000003.json             a finished run: cut, verdict, summary
    nights/000003.acknowledged     a person has seen its anomalies: the next run begins where it ended
    nights/000003.forgotten        folders of its IDs, deleted on purpose: no later run needs them
    results/000003/                Parquet: anomalies, counts, resends, state for the next run (inputs, ahead, hops)
    accepted/date=…/night=3/       Parquet: accepted IDs, one folder for each address
    scratch/                       temporary files of the current run
"""

from typing import Final

RUNS: Final = "nights"
RESULTS: Final = "results"
ACCEPTED: Final = "accepted"
SCRATCH: Final = "scratch"
DONE: Final = ".json"
SEEN: Final = ".acknowledged"
FORGOTTEN: Final = ".forgotten"
FIGURES: Final = "figures.json"  # data of the report, in the results of a run
RUN_COLUMN: Final = "night"  # folder key for the number of a run


def file_of(number: int) -> str:
    """Return the file of a run; a run is finished when it exists."""
    return f"{RUNS}/{_name(number)}{DONE}"


def seen_of(number: int) -> str:
    """Return the file with the time at which a run was acknowledged."""
    return f"{RUNS}/{_name(number)}{SEEN}"


def forgotten_of(number: int) -> str:
    """Return the file that lists folders of a run's IDs that were deleted on purpose."""
    return f"{RUNS}/{_name(number)}{FORGOTTEN}"


def results_folder(number: int) -> str:
    """Return the folder of a run's results."""
    return f"{RESULTS}/{_name(number)}"


def ids_folder(date: str, number: int) -> str:
    """Return the folder of the IDs that a run saw accepted."""
    return f"{ACCEPTED}/date={date}/{RUN_COLUMN}={number}"


def _name(number: int) -> str:
    return f"{number:06d}"
