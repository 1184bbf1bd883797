"""The accepted IDs of nights before: where they are, how many, and for how long.

An ID is needed while a ring may know it, and where the last night is judged again also those that only nights before it
have seen. Each address forgets by itself: a busy one does not wait for the rings of a quiet one.
"""

from collections.abc import Callable, Mapping, Sequence

from reconcile.run.history.history import (
    ACCEPTED,
    NIGHTS,
    RESULTS,
    SCRATCH,
    LaneCounts,
    Run,
    RunHistory,
    added,
    days_before,
    forgotten_of,
    ids_folder,
    results_folder,
)
from reconcile.spark.files import Files

_NIGHT = "night="
_ADDRESS = "address="
_SIZE = "id_cache_size"


def kept(files: Files) -> dict[int, list[str]]:
    """Return the addresses of which each run has IDs."""
    found: dict[int, list[str]] = {}
    for date in files.names(ACCEPTED):
        for name in files.names(f"{ACCEPTED}/{date}"):
            number = name.removeprefix(_NIGHT)
            if number.isdecimal():
                inside = files.names(f"{ACCEPTED}/{date}/{name}")
                found[int(number)] = [
                    name.removeprefix(_ADDRESS) for name in inside if name.startswith(_ADDRESS)
                ]
    return found


def address_folder(night: Run, address: str) -> str:
    """Of the IDs that a night saw accepted at one address."""
    return folder_of(night.date, night.number, address)


def folder_of(date: str, number: int, address: str) -> str:
    """Of the IDs that a night, by its date and number, sees accepted at one address."""
    return f"{ids_folder(date, number)}/{_ADDRESS}{address}"


def count(nights: RunHistory, base: Run | None) -> int:
    """How many are read by a night that goes on from another one."""
    there = kept(nights.files)
    return sum(
        n
        for night in nights.chain(base)
        if night.number in there
        for address, lanes in night.accepted.items()
        if {address, nights.former.get(address)} & set(there[night.number])
        for n in lanes.values()
    )


def sweep(nights: RunHistory) -> None:
    """Remove what a crashed run has left."""
    files = nights.files
    files.delete(SCRATCH)
    for name in files.names(RESULTS):
        if name.isdecimal() and int(name) not in nights.finished:
            files.delete(f"{RESULTS}/{name}")
    for date in files.names(ACCEPTED):
        for name in files.names(f"{ACCEPTED}/{date}"):
            number = name.removeprefix(_NIGHT)
            if number.isdecimal() and int(number) not in nights.finished:
                files.delete(f"{ACCEPTED}/{date}/{name}")


def forget(nights: RunHistory, today: str, keep_days: int) -> None:
    """Remove what no later night can need."""
    last = nights.last
    if last is None:
        return
    # The next one may go on from where the last one did.
    base = nights.base_of(last)
    chain = nights.chain(base)
    oldest = days_before(today, keep_days)
    capacities = _capacities(last, [run for run in chain if run.date >= oldest])
    spared = expendable(chain, today, keep_days, capacities, lambda *of: heirs(last, *of))
    needed = {last.number, *(run.number for run in chain)}
    for number, there in kept(nights.files).items():
        night = nights.finished.get(number)
        if night is None:
            continue
        gone = [name for name in there if (name, number) in spared]
        if gone:
            _note(nights.files, night, gone)
        if number not in needed or len(gone) == len(there):
            _delete(nights.files, night)
            continue
        for name in gone:
            nights.files.delete(address_folder(night, name))
    _forget_results(nights, [last] if base is None else [last, base], oldest)


def _note(files: Files, night: Run, addresses: Sequence[str]) -> None:
    """Write down what is to go, before it goes: whatever else is missing is damage."""
    known, gone = forgotten(files, night.number), {address_folder(night, address) for address in addresses}
    if gone - known:
        files.write(forgotten_of(night.number), "".join(f"{name}\n" for name in sorted(known | gone)))


def forgotten(files: Files, number: int) -> set[str]:
    """Folders of a night's IDs that were removed as no later night can need them."""
    name = forgotten_of(number)
    there = name.removeprefix(f"{NIGHTS}/") in files.names(NIGHTS)
    return set(files.read(name).splitlines()) if there else set()


def _capacities(last: Run, recent: Sequence[Run]) -> dict[str, int]:
    """Address → the largest of what the configuration said on these nights: workers go by what it said when they were started."""
    return {
        name: max(int(night.rules.get(name, {}).get(_SIZE, 0)) for night in (last, *recent))
        for name in last.rules
    }


def _forget_results(nights: RunHistory, latest: Sequence[Run], oldest: str) -> None:
    waiting = {number for run in latest for number in (run.number, *run.left.values())}
    for name in nights.files.names(RESULTS):
        night = nights.finished.get(int(name)) if name.isdecimal() else None
        if night is not None and night.date < oldest and night.number not in waiting:
            nights.files.delete(results_folder(night.number))


def _delete(files: Files, night: Run) -> None:
    files.delete(ids_folder(night.date, night.number))
    if not files.names(f"{ACCEPTED}/date={night.date}"):
        files.delete(f"{ACCEPTED}/date={night.date}")


def heirs(last: Run, night: Run, address: str, lane: int) -> Sequence[int]:
    """The lanes that may know what one of a former night knew: more where the address has got more since. Itself is one."""
    topic = str(last.rules.get(address, {}).get("input_topic", ""))
    then, now = (len(run.positions[topic].ends) if topic in run.positions else 0 for run in (night, last))
    return range(lane, now, then) if now > then > 0 else (lane,)


def expendable(
    chain: Sequence[Run],
    today: str,
    keep_days: int,
    capacities: Mapping[str, int],
    known_to: Callable[[Run, str, int], Sequence[int]] = lambda _night, _address, lane: (lane,),
) -> set[tuple[str, int]]:
    """Address and night whose IDs are old enough, and which no ring can hold any more.

    Args:
        chain: The latest first.
        today: A day, as the nights have it.
        keep_days: IDs are kept for so long.
        capacities: Address → IDs that a ring may hold.
        known_to: As :func:`heirs`, of the last night.
    """
    oldest = days_before(today, keep_days)
    later: LaneCounts = {}
    found = set()
    for night in chain:
        for address, lanes in night.accepted.items():
            since = later.get(address, {})
            knowing = {number for lane in lanes for number in known_to(night, address, lane)}
            full = all(since.get(lane, 0) >= capacities.get(address, 0) for lane in knowing)
            if night.date < oldest and full:
                found.add((address, night.number))
        later = added([later, night.accepted])
    return found
