"""Accepted IDs of earlier runs: their folders, their number, and their retention.

An ID is kept as long as a ring may know it, or the last run may be judged again. Addresses forget IDs
independently: IDs of a busy address do not wait for the rings of a quiet one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from reconcile.run.history import history, layout
from reconcile.run.history.history import LaneCounts, Run, RunHistory
from reconcile.run.history.layout import ACCEPTED, RESULTS, RUN_COLUMN, RUNS
from reconcile.run.history.rings import Rings
from reconcile.run.history.rules import size_kept
from reconcile.spark.files import Files

_RUN = f"{RUN_COLUMN}="
_ADDRESS = "address="


def kept(files: Files) -> dict[int, list[str]]:
    """Return run → addresses whose IDs it keeps."""
    return {
        number: [name.removeprefix(_ADDRESS) for name in files.names(folder) if name.startswith(_ADDRESS)]
        for number, folder in _id_folders(files)
    }


def _id_folders(files: Files) -> Iterator[tuple[int, str]]:
    for date in files.names(ACCEPTED):
        for name in files.names(f"{ACCEPTED}/{date}"):
            if (number := name.removeprefix(_RUN)).isdecimal():
                yield int(number), f"{ACCEPTED}/{date}/{name}"


def address_folder(date: str, number: int, address: str) -> str:
    """Return the folder of an address's IDs, by date and number of the run."""
    return f"{layout.ids_folder(date, number)}/{_ADDRESS}{address}"


def count(runs: RunHistory, base: Run | None) -> int:
    """Return the number of IDs that a run with this base reads."""
    there = kept(runs.files)
    return sum(
        n
        for run in runs.chain(base)
        if run.number in there
        for address, lanes in run.accepted.items()
        if {address, runs.former.get(address)} & set(there[run.number])
        for n in lanes.values()
    )


def sweep(runs: RunHistory) -> None:
    """Remove leftovers of a crashed run."""
    files = runs.files
    files.delete(layout.SCRATCH)
    for name in files.names(RESULTS):
        if name.isdecimal() and int(name) not in runs.finished:
            files.delete(f"{RESULTS}/{name}")
    for number, folder in _id_folders(files):
        if number not in runs.finished:
            files.delete(folder)


def forget(runs: RunHistory, today: str, keep_days: int, rings: Mapping[str, Rings]) -> None:
    """Remove files that no later run can need. ``rings``: address → its rings."""
    last = runs.last
    if last is None:
        return
    # the next run may continue from the base of the last one, to repeat it
    base = runs.base_of(last)
    chain = runs.chain(base)
    oldest = history.days_before(today, keep_days)
    recent = [last, *(run for run in chain if run.date >= oldest)]
    # Use the largest size configured in these runs: workers keep the size from their start.
    capacities = {name: max(size_kept(run.rules.get(name, {})) or 0 for run in recent) for name in last.rules}
    spared = expendable(chain, today, keep_days, capacities, lambda *of: heirs(last, rings, *of))
    needed = {last.number, *(run.number for run in chain)}
    for number, there in kept(runs.files).items():
        run = runs.finished.get(number)
        if run is None:
            continue
        gone = [name for name in there if (name, number) in spared]
        if gone:
            _note(runs.files, run, gone)
        if number not in needed or len(gone) == len(there):
            runs.files.delete(layout.ids_folder(run.date, number))
            if not runs.files.names(f"{ACCEPTED}/date={run.date}"):
                runs.files.delete(f"{ACCEPTED}/date={run.date}")
            continue
        for name in gone:
            runs.files.delete(address_folder(run.date, number, name))
    _forget_results(runs, [last] if base is None else [last, base], oldest)


def _note(files: Files, run: Run, addresses: Sequence[str]) -> None:
    """Record folders before they are deleted, since other missing folders count as damage."""
    known = forgotten(files, run.number)
    gone = {address_folder(run.date, run.number, address) for address in addresses}
    if gone - known:
        files.write_text(
            layout.forgotten_of(run.number), "".join(f"{name}\n" for name in sorted(known | gone))
        )


def forgotten(files: Files, number: int) -> set[str]:
    """Return the folders of a run's IDs that were deleted on purpose."""
    name = layout.forgotten_of(number)
    there = name.removeprefix(f"{RUNS}/") in files.names(RUNS)
    return set(files.read_text(name).splitlines()) if there else set()


def _forget_results(runs: RunHistory, latest: Sequence[Run], oldest: str) -> None:
    waiting = {number for run in latest for number in (run.number, *run.left.values())}
    for name in runs.files.names(RESULTS):
        run = runs.finished.get(int(name)) if name.isdecimal() else None
        if run is not None and run.date < oldest and run.number not in waiting:
            runs.files.delete(layout.results_folder(run.number))


def heirs(last: Run, rings: Mapping[str, Rings], run: Run, address: str, lane: int) -> Sequence[int]:
    """Return the lanes that may know the IDs of an earlier lane, itself included.

    With more lanes, several lanes know them. If the address sets `lanes`, more partitions do not give more
    lanes. After a regrouping, new lanes know the IDs of former ones.
    """
    if (of := rings.get(address)) is not None and (of.fixed or of.regroups):
        return of.heirs(lane)
    topic = str(last.rules.get(address, {}).get("input_topic", ""))
    then, now = (len(at.positions[topic].ends) if topic in at.positions else 0 for at in (run, last))
    return range(lane, now, then) if now > then > 0 else (lane,)


def expendable(
    chain: Sequence[Run],
    today: str,
    keep_days: int,
    capacities: Mapping[str, int],
    known_to: Callable[[Run, str, int], Sequence[int]] = lambda _run, _address, lane: (lane,),
) -> set[tuple[str, int]]:
    """Return (address, run) whose IDs are older than ``keep_days``, and in no ring any more.

    ``chain``: runs, the latest first; ``today``: ISO 8601; ``capacities``: address → size limit of its rings,
    in IDs; ``known_to``: :func:`heirs` without its first two arguments.
    """
    oldest = history.days_before(today, keep_days)
    later: LaneCounts = {}
    found = set()
    for run in chain:
        for address, lanes in run.accepted.items():
            since = later.get(address, {})
            knowing = {number for lane in lanes for number in known_to(run, address, lane)}
            full = all(since.get(lane, 0) >= capacities.get(address, 0) for lane in knowing)
            if run.date < oldest and full:
                found.add((address, run.number))
        later = history.added([later, run.accepted])
    return found
