"""Judge what handlers did, group by group, from the lines that they appended (:mod:`tests.support.handlers`).

A group has a next sequence number: a lower one is a repetition, a higher one out of order. Only a *disturbance* of the process that ran a
message last (killed, or frozen until others took over) excuses a repetition from there on. A message that a *snapshot* lists as
written does not begin after it. A *token* belongs to one holder of a partition, and never falls, unless a process did not know yet that it had slept.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from tests.support.consumers.processes import Written


class Anomaly(Enum):
    """Errors in the runs of handlers."""

    LOST = "not handled to the end"
    REPEATED = "handled again, and nothing excuses it"
    REORDERED = "handled before an earlier one of its group was"
    OVERLAPPED = "handled while another of its group was"
    REDONE = "handled although it was written as finished"
    PHANTOM = "handled and never sent"
    UNFENCED = "begun with a token that is not above that of another holder before it"
    EARLY = "begun before the lease of its holder had run out"


@dataclass(frozen=True)
class Run:
    """A message in a handler."""

    begin: float
    end: float | None
    pid: int
    label: str
    sequence: int
    partition: int = 0
    offset: int = 0
    attempt: int = 1
    fence: int = 0


class Disturbance(NamedTuple):
    """An interruption of a process."""

    pid: int
    time: float
    until: float = 0.0
    """Runs that it began from ``time`` to here do not count, except under a token higher than all before: it did not know yet that it had slept."""
    unwritten: float = math.inf
    """Seconds: runs that had ended longer ago were written, so they are not excused."""
    lease: float = 0.0
    """Seconds in which nobody else begins anything of a partition where it was running something."""


class Snapshot(NamedTuple):
    """Progress that was written at a time or earlier, by partition."""

    time: float
    written: Mapping[int, Written]

    def finished(self, run: Run) -> bool:
        found = self.written.get(run.partition)
        return found is not None and found.finished(run.offset)

    def counts(self, run: Run) -> bool:
        found = self.written.get(run.partition)
        return found is not None and found.progress.attempts.get(run.offset) == run.attempt


class Finding(NamedTuple):
    """One error."""

    anomaly: Anomaly
    label: str
    text: str


def parse(lines: Iterable[str]) -> list[Run]:
    runs: list[Run] = []
    running: dict[tuple[str, ...], int] = {}
    for line in lines:
        time, what, pid, label, sequence, _, partition, offset, attempt, fence = line.split()
        key = (pid, partition, offset, fence)
        if what == "begin":
            running[key] = len(runs)
            numbers = (int(sequence), int(partition), int(offset), int(attempt), int(fence))
            runs.append(Run(float(time), None, int(pid), label, *numbers))
        else:
            index = running.pop(key)
            runs[index] = replace(runs[index], end=float(time))
    return sorted(runs, key=lambda item: item.begin)


def judge(
    runs: Iterable[Run],
    expected: Mapping[str, int],
    disturbances: Sequence[Disturbance] = (),
    snapshots: Sequence[Snapshot] = (),
) -> list[Finding]:
    groups: dict[str, list[Run]] = {label: [] for label in expected}
    ordered = sorted(runs, key=lambda item: item.begin)
    findings = [*_tokens(ordered, disturbances), *_early(ordered, disturbances)]
    risen = _risen(ordered)
    for run in ordered:
        mine = [disturbance for disturbance in disturbances if disturbance.pid == run.pid]
        since = risen.get((run.partition, run.fence), -math.inf)
        if any(item.time <= run.begin < item.until and since < item.time for item in mine):
            continue
        ended = next((item.time for item in mine if run.begin < item.time <= (run.end or math.inf)), None)
        groups.setdefault(run.label, []).append(run if ended is None else replace(run, end=None))
    for label, group in groups.items():
        if label not in expected:
            findings.append(Finding(Anomaly.PHANTOM, label, f"{len(group)} times"))
            continue
        findings += _sequence(label, group, expected[label], disturbances)
        findings += _overlaps(label, group, disturbances)
    findings += [
        Finding(Anomaly.REDONE, run.label, f"{run} begins after it was written at {shot.time}")
        for run in (run for group in groups.values() for run in group)
        for shot in snapshots
        if shot.time < run.begin and shot.finished(run)
    ]
    return findings


def _risen(runs: Sequence[Run]) -> dict[tuple[int, int], float]:
    """Return, by partition and token, the first begin under a token that is higher than those before it."""
    highest: dict[int, int] = {}
    found = {}
    for run in runs:
        if run.fence > highest.setdefault(run.partition, run.fence):
            highest[run.partition] = run.fence
            found[run.partition, run.fence] = run.begin
    return found


def _sequence(
    label: str, group: Sequence[Run], size: int, disturbances: Sequence[Disturbance]
) -> Iterable[Finding]:
    due = 0
    latest: dict[int, Run] = {}
    for run in group:
        earlier = [
            latest[index] for index in range(run.sequence, max(due, run.sequence + 1)) if index in latest
        ]
        late = run.sequence < due and run.sequence not in latest
        if late or run.sequence > due:
            yield Finding(Anomaly.REORDERED, label, f"{due} was due: {run}")
        elif not all(_disturbed(item, run, disturbances) for item in earlier):
            yield Finding(Anomaly.REPEATED, label, f"{due} was due: {run} after {earlier[0]}")
        latest[run.sequence] = run
        if not late:
            due = run.sequence + (run.end is not None)
    missing = [index for index in range(size) if index not in latest or latest[index].end is None]
    if missing or due != size:
        yield Finding(Anomaly.LOST, label, f"it ended at {due} of {size}; without an end: {missing}")


def _disturbed(earlier: Run, later: Run, disturbances: Sequence[Disturbance]) -> bool:
    return any(
        disturbance.pid == earlier.pid
        and earlier.begin < disturbance.time < later.begin
        and (earlier.end is None or earlier.end > disturbance.time - disturbance.unwritten)
        for disturbance in disturbances
    )


def _overlaps(label: str, group: Sequence[Run], disturbances: Sequence[Disturbance]) -> Iterable[Finding]:
    latest: Run | None = None
    until = -math.inf
    for run in group:
        if latest is not None and run.begin < until:
            yield Finding(Anomaly.OVERLAPPED, label, f"{run} begins before the end of {latest}")
        end = run.end if run.end is not None else _death(run, disturbances)
        if end > until:
            latest, until = run, end


def _tokens(runs: Sequence[Run], disturbances: Sequence[Disturbance]) -> Iterable[Finding]:
    highest: dict[int, Run] = {}
    for run in (run for run in runs if run.fence):
        before = highest.setdefault(run.partition, run)
        ignorant = any(
            disturbance.pid == run.pid and disturbance.time <= run.begin < disturbance.until
            for disturbance in disturbances
        )
        if run.fence > before.fence:
            highest[run.partition] = run
        elif (run.fence < before.fence and not ignorant) or (
            run.fence == before.fence and run.pid != before.pid
        ):
            yield Finding(Anomaly.UNFENCED, run.label, f"{run} after {before}")


def _early(runs: Sequence[Run], disturbances: Sequence[Disturbance]) -> Iterable[Finding]:
    for disturbance in disturbances:
        held = {
            run.partition
            for run in runs
            if run.pid == disturbance.pid
            and run.begin < disturbance.time < (math.inf if run.end is None else run.end)
        }
        for run in runs:
            if (
                run.pid != disturbance.pid
                and run.partition in held
                and 0 < run.begin - disturbance.time < disturbance.lease
            ):
                yield Finding(
                    Anomaly.EARLY,
                    run.label,
                    f"{run} {run.begin - disturbance.time:.3f} s after {disturbance}",
                )


def _death(run: Run, disturbances: Sequence[Disturbance]) -> float:
    return min(
        (
            disturbance.time
            for disturbance in disturbances
            if disturbance.pid == run.pid and run.begin < disturbance.time
        ),
        default=math.inf,
    )
