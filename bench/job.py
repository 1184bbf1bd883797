"""One run of one contender, measured from its first commit to its last."""

import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import measure, topics
from bench.errors import BenchError
from bench.measure import Child, Reading
from bench.topics import Committed, Progress, Written

POLL_S: Final = 0.05
STALL_LIMIT_S: Final = 90.0
"""Without any commit. Longer than a session time-out and a rebalance."""


@dataclass(frozen=True, slots=True)
class Target:
    """Another cluster."""

    bootstrap: str
    broker_pid: int


@dataclass(frozen=True, slots=True)
class Job:
    """Task of a contender, and how it is started."""

    contender: str
    command: tuple[str, ...]
    """After ``program``; runs in ``folder`` until SIGTERM."""
    group: str
    input: str
    output: str
    partitions: int
    messages: int
    """In the input topic."""
    forward: str = ""
    """Topic that the contender forwards through; what is in it has to be consumed too. Empty = none."""
    reports: bool = False
    """Its commits are too rare to measure by: it prints how many messages it has finished."""
    parts: int = 1
    """Messages that a record of the input holds: those of a transaction are what is counted."""
    folder: Path = measure.ROOT
    """Root of the project, or of another version of it."""
    program: str = sys.executable
    environ: tuple[tuple[str, str], ...] = ()
    """Added to its environment."""
    target: Target | None = None
    """Place of the output, whose records are then the progress; None = on the input's cluster, with the group's commits as progress."""


@dataclass(frozen=True, slots=True)
class Run:
    """What was measured. ``seconds``, ``cpu_s`` and ``broker_cpu_s`` belong to ``measured`` messages."""

    contender: str
    measured: int
    seconds: float
    cpu_s: float
    broker_cpu_s: float
    life_cpu_s: float
    """CPU seconds of the whole process, start and end included."""
    peak_rss_bytes: int
    outputs: int
    distinct_outputs: int
    out_of_order: int = 0
    """Outputs behind a later one of their group, where they name their source."""
    forwarded: int | None = None
    """Committed records in the forward topic; None = no such topic exists."""

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.measured / self.seconds

    @property
    def cpu_s_per_million(self) -> float:
        """CPU seconds for a million messages."""
        return self.cpu_s / self.measured * 1e6


@dataclass(frozen=True, slots=True)
class _Sample:
    """Finished messages, and what had been spent on them."""

    finished: int
    position: int
    """Grows although none was finished, when what had been forwarded was consumed."""
    contender: Reading
    brokers_cpu_s: float


def perform(job: Job, bootstrap: str, brokers: Sequence[int], log: Path) -> Run:
    """Run the contender over the whole input, then count what it wrote.

    The clock runs from the first progress that is seen to the last, and only messages finished in between count. Start-up, joining the
    group and stopping are left out, for all alike. The group's commits, the contender's reports, or the records in another cluster show the
    progress. Messages that are forwarded before the first progress are consumed within the measured time: they count as cost and not as
    messages.

    Raises:
        BenchError: it ended early, stood still, or did not stop.
    """
    try:
        with (
            measure.child([job.program, *job.command], log, job.folder, dict(job.environ)) as child,
            _progress(job, bootstrap) as progress,
        ):
            ends = _ends(job, bootstrap)
            pids = [*brokers] if job.target is None else [*brokers, job.target.broker_pid]
            first, last, peak_rss_bytes = _follow(job, child, pids, progress, ends)
            life_cpu_s = child.stop()
    except BenchError as error:
        raise BenchError(f"{job.contender}: {error}") from error
    counted = topics.count(
        bootstrap if job.target is None else job.target.bootstrap, job.output, job.partitions
    )
    forwarded = topics.count(bootstrap, job.forward, job.partitions).records if job.forward else None
    return Run(
        contender=job.contender,
        measured=(last.finished - first.finished) * job.parts,
        seconds=last.contender.moment_s - first.contender.moment_s,
        cpu_s=last.contender.cpu_s - first.contender.cpu_s,
        broker_cpu_s=last.brokers_cpu_s - first.brokers_cpu_s,
        life_cpu_s=life_cpu_s,
        peak_rss_bytes=peak_rss_bytes,
        outputs=counted.records,
        distinct_outputs=counted.distinct,
        out_of_order=counted.out_of_order,
        forwarded=forwarded,
    )


def _progress(job: Job, bootstrap: str) -> Progress | Written:
    if job.target is not None:
        return Written(job.target.bootstrap, job.output, job.partitions)
    return Progress(bootstrap, job.group, job.input, job.partitions, job.forward)


def _ends(job: Job, bootstrap: str) -> Callable[[], Sequence[int]]:
    """Return a function for the end offsets of the forward topic; it asks for them once."""
    return functools.cache(
        lambda: topics.data_ends(bootstrap, job.forward, job.partitions) if job.forward else ()
    )


def _follow(
    job: Job,
    child: Child,
    brokers: Sequence[int],
    progress: Progress | Written,
    forward_ends: Callable[[], Sequence[int]],
) -> tuple[_Sample, _Sample, int]:
    """First and last sample that show progress, and peak RSS, once all is committed; gives up on a long silence."""
    first = last = None
    committed, position = Committed(0), 0
    changed = time.monotonic()
    while True:
        before, committed = committed, progress.committed()
        finished = child.reported() if job.reports else committed.messages
        now = _Sample(
            finished,
            finished if job.reports else committed.position,
            child.read(),
            measure.cpu_s(brokers),
        )
        if now.position > position:
            position = now.position
            first, last = first or now, now
        if committed.complete(job.messages, forward_ends):
            break
        if committed.position > before.position:
            changed = time.monotonic()
        elif time.monotonic() - changed > STALL_LIMIT_S:
            raise BenchError(
                f"stands still at {committed.messages} of {job.messages} messages for {STALL_LIMIT_S:.0f} s:\n"
                f"{child.tail()}"
            )
        time.sleep(POLL_S)
    if first is None or last is None or first.finished == last.finished:
        raise BenchError(f"all {job.messages} messages were done before it could be measured: take more")
    return first, last, now.contender.peak_rss_bytes


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Smallest, median, largest."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return ordered[0], median, ordered[-1]


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of them does not exceed.

    Raises:
        BenchError: there are none.
    """
    if not ordered:
        raise BenchError("no message came out in the time that was measured")
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
