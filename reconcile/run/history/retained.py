"""What a finished night leaves for later ones to read: a night says which folders, and the next one sees that they are there.

Without an ID that was accepted before, a duplicate of it looks LOST, and whoever sends it again doubles it. So what has gone, and was
not forgotten on purpose, is an error. ``nights/000003.forgotten`` has the folders of night 3 that were.
"""

from collections.abc import Collection, Iterator, Mapping

from reconcile.run.history.cut import AddressCut
from reconcile.run.history.history import Run, RunHistory, file_of, ids_folder, results_folder
from reconcile.run.history.id_store import address_folder, forgotten
from reconcile.spark.files import Files
from ringfence_kafka.errors import PrerequisiteError

HANDED_ON = ("ahead", "hops", "inputs")
"""Of a night's results what the next night reads."""
_RESTORE = "restore it from a backup of reconcile.state_dir; without one "
_ANEW = "name another reconcile.state_dir: the next run begins at the start of the logs, and what retention has taken of them is GAP"


def of(files: Files, date: str, number: int) -> dict[str, int]:
    """Folder → its Parquet files: of a night that has written all, and is not finished yet."""
    ids, results = ids_folder(date, number), results_folder(number)
    folders = [f"{ids}/{name}" for name in files.names(ids)]
    folders += [f"{results}/{name}" for name in HANDED_ON]
    counts = {folder: _parquet(files, folder) for folder in folders}
    return {folder: count for folder, count in counts.items() if count}


def refuse_missing(nights: RunHistory, base: Run | None, cuts: Mapping[str, AddressCut]) -> None:
    """See that all is there that a night reads of those before.

    Args:
        nights: All.
        base: The night that it goes on from.
        cuts: What it covers.

    Raises:
        PrerequisiteError: something is not; with what would follow, and the way out.
    """
    for night in [nights.last, *nights.chain(base)]:
        if night is not None and night.base is not None and night.base not in nights.finished:
            raise PrerequisiteError(
                f"{nights.files.root}/{file_of(night.base)} is missing, and run {night.number} went on from that run, so duplicates of "
                f"what it saw accepted would be called LOST: {_RESTORE}{_ANEW}"
            )
    gone = [
        (night.number, folder, there, written)
        for night, folder in _read(nights, base, cuts)
        if (written := night.leaves.get(folder, 0)) > (there := _parquet(nights.files, folder))
        and folder not in forgotten(nights.files, night.number)
    ]
    if gone:
        (number, folder, there, written), *others = gone
        more = f" (and {len(others)} folders beside it lack some)" if others else ""
        # The last one is judged again without its file, from where the one before it ended.
        last = nights.last is not None and number == nights.last.number
        anew = f"remove {nights.files.root}/{file_of(number)}: that run is judged again" if last else _ANEW
        raise PrerequisiteError(
            f"{nights.files.root}/{folder} has {there} of the {written} Parquet files that run {number} wrote{more}, so duplicates of "
            f"what was accepted then would be called LOST: {_RESTORE}{anew}"
        )


def _read(nights: RunHistory, base: Run | None, cuts: Mapping[str, AddressCut]) -> Iterator[tuple[Run, str]]:
    for night in nights.chain(base):
        same = {name for name, cut in cuts.items() if not night.judged_another(cut.input)}
        names = same | {nights.former[name] for name in same if name in nights.former}
        yield from ((night, address_folder(night, name)) for name in sorted(names))
    left: Collection[int] = {base.left_by(cut) for cut in cuts} if base is not None else ()
    for number in sorted(left):
        if (of_it := nights.finished.get(number)) is not None:
            yield from ((of_it, f"{results_folder(number)}/{name}") for name in HANDED_ON)


def _parquet(files: Files, folder: str) -> int:
    return sum(name.endswith(".parquet") for name in files.names(folder))
