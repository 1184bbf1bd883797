"""Checks that the files of earlier runs are complete.

If an accepted ID is missing, its duplicate looks LOST, and an operator who sends it again doubles it. A
missing folder is therefore an error, unless it was deleted on purpose (``nights/000003.forgotten``).
"""

from collections.abc import Collection, Iterator, Mapping

from reconcile.run.history.cut import AddressCut
from reconcile.run.history.history import Run, RunHistory
from reconcile.run.history.id_store import address_folder, forgotten
from reconcile.run.history.layout import file_of, ids_folder, results_folder
from reconcile.spark.files import Files
from ringfence_kafka.errors import PrerequisiteError

HANDED_ON = ("ahead", "hops", "inputs")  # results of a run that the next run reads
_RESTORE = "restore it from a backup of reconcile.state_dir; without one "
_ANEW = (
    "name another reconcile.state_dir: the next run begins at the start of the logs, and records that "
    "retention deleted are reported as GAP"
)


def files_by_folder(files: Files, date: str, number: int) -> dict[str, int]:
    """Return folder → number of its Parquet files, for a run that has written all files."""
    ids, results = ids_folder(date, number), results_folder(number)
    folders = [f"{ids}/{name}" for name in files.names(ids)]
    folders += [f"{results}/{name}" for name in HANDED_ON]
    counts = {folder: _parquet(files, folder) for folder in folders}
    return {folder: count for folder, count in counts.items() if count}


def refuse_missing(runs: RunHistory, base: Run | None, cuts: Mapping[str, AddressCut]) -> None:
    """Raise PrerequisiteError if a file is missing that a run with this base and these cuts reads."""
    for run in [runs.last, *runs.chain(base)]:
        if run is not None and run.base is not None and run.base not in runs.finished:
            raise PrerequisiteError(
                f"{runs.files.root}/{file_of(run.base)} is missing, and run {run.number} continues from "
                "that run, so duplicates of messages that it saw accepted would be reported as LOST: "
                f"{_RESTORE}{_ANEW}"
            )
    gone = [
        (run.number, folder, there, written)
        for run, folder in _read(runs, base, cuts)
        if (written := run.leaves.get(folder, 0)) > (there := _parquet(runs.files, folder))
        and folder not in forgotten(runs.files, run.number)
    ]
    if gone:
        (number, folder, there, written), *others = gone
        more = f" (and {len(others)} folders beside it lack some)" if others else ""
        # the last run can be judged again, from the end of its base, without its files
        last = runs.last is not None and number == runs.last.number
        anew = f"remove {runs.files.root}/{file_of(number)}: that run is judged again" if last else _ANEW
        raise PrerequisiteError(
            f"{runs.files.root}/{folder} has {there} of the {written} Parquet files that run {number} "
            f"wrote{more}, so duplicates of messages that were accepted then would be reported as LOST: "
            f"{_RESTORE}{anew}"
        )


def _read(runs: RunHistory, base: Run | None, cuts: Mapping[str, AddressCut]) -> Iterator[tuple[Run, str]]:
    for run in runs.chain(base):
        same = {name for name, cut in cuts.items() if not run.judged_another(cut.input)}
        names = same | {runs.former[name] for name in same if name in runs.former}
        yield from ((run, address_folder(run.date, run.number, name)) for name in sorted(names))
    left: Collection[int] = {base.left_by(cut) for cut in cuts} if base is not None else ()
    for number in sorted(left):
        if (of_it := runs.finished.get(number)) is not None:
            yield from ((of_it, f"{results_folder(number)}/{name}") for name in HANDED_ON)


def _parquet(files: Files, folder: str) -> int:
    return sum(name.endswith(".parquet") for name in files.names(folder))
