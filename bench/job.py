"""One run of one contender, measured from its first commit to its last."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import measure, topics
from bench.errors import BenchError
from bench.measure import Child, Reading
from bench.topics import Progress

POLL_S: Final = 0.05
STALL_LIMIT_S: Final = 90.0
"""Without any commit. Longer than a session time-out and a rebalance."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a contender has to do and how it is started."""

    contender: str
    command: tuple[str, ...]
    """After ``python``; runs in the root of the project until SIGTERM."""
    group: str
    input: str
    output: str
    partitions: int
    messages: int
    """In the input topic."""
    reports: bool = False
    """Its commits are too rare to measure by: it prints how many messages it has finished."""


@dataclass(frozen=True, slots=True)
class Run:
    """What was measured. ``seconds``, ``cpu_s`` and ``broker_cpu_s`` belong to ``measured`` messages."""

    contender: str
    measured: int
    seconds: float
    cpu_s: float
    broker_cpu_s: float
    life_cpu_s: float
    """Of the whole process, start and end included."""
    peak_rss_bytes: int
    outputs: int
    distinct_outputs: int

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
    contender: Reading
    broker: Reading


def perform(job: Job, bootstrap: str, broker_pid: int, log: Path) -> Run:
    """Run the contender over the whole input, then count what it wrote.

    The clock runs from the first progress that is seen to the last, and what was finished in between is what
    counts. So start-up, joining the group and stopping are left out, for all alike. Progress is what the group
    has committed, or what the contender reports.

    Raises:
        BenchError: it ended early, stood still, or did not stop.
    """
    try:
        with (
            measure.child([sys.executable, *job.command], log) as child,
            Progress(bootstrap, job.group, job.input, job.partitions) as progress,
        ):
            first, last, peak_rss_bytes = _follow(job, child, broker_pid, progress)
            life_cpu_s = child.stop()
    except BenchError as error:
        raise BenchError(f"{job.contender}: {error}") from error
    counted = topics.count(bootstrap, job.output, job.partitions)
    return Run(
        contender=job.contender,
        measured=last.finished - first.finished,
        seconds=last.contender.moment_s - first.contender.moment_s,
        cpu_s=last.contender.cpu_s - first.contender.cpu_s,
        broker_cpu_s=last.broker.cpu_s - first.broker.cpu_s,
        life_cpu_s=life_cpu_s,
        peak_rss_bytes=peak_rss_bytes,
        outputs=counted.records,
        distinct_outputs=counted.distinct,
    )


def _follow(job: Job, child: Child, broker_pid: int, progress: Progress) -> tuple[_Sample, _Sample, int]:
    """First and last sample that show progress, and peak RSS, once all is committed; gives up on a long silence."""
    first = last = None
    committed = finished = 0
    changed = time.monotonic()
    while True:
        before, committed = committed, progress.committed()
        now = _Sample(child.reported() if job.reports else committed, child.read(), measure.read(broker_pid))
        if now.finished > finished:
            finished = now.finished
            first, last = first or now, now
        if committed >= job.messages:
            break
        if committed > before:
            changed = time.monotonic()
        elif time.monotonic() - changed > STALL_LIMIT_S:
            raise BenchError(
                f"stands still at {committed} of {job.messages} messages for {STALL_LIMIT_S:.0f} s:\n{child.tail()}"
            )
        time.sleep(POLL_S)
    if first is None or last is None or first is last:
        raise BenchError(f"all {job.messages} messages were done before it could be measured: take more")
    return first, last, now.contender.peak_rss_bytes


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Smallest, median, largest."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return ordered[0], median, ordered[-1]
