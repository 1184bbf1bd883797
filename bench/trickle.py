"""Measure the latency of an idle contender, and its cost."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench import measure, startup, topics
from bench.errors import BenchError
from bench.job import quantile
from bench.measure import Child
from bench.startup import COPIES, Place
from bench.steady import Reader, Traffic

RATE: Final = 5_000
WARM_UP_S: Final = 10.0
"""From its first output on: what has come while it started is worked off, and Java has compiled what it runs."""
LIMIT_S: Final = 90.0
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Trickle:
    """All seconds are from a message's making to its being read from the output, as committed data."""

    messages: int
    """In the measured time."""
    p50_s: float
    p99_s: float
    max_s: float
    cpu_s_per_million: float
    broker_cpu_s_per_million: float
    outputs: int
    """In all."""
    distinct_outputs: int
    expected: int
    expected_distinct: int

    @property
    def exact(self) -> bool:
        """Whether all came out, and nothing twice that should not."""
        return (self.outputs, self.distinct_outputs) == (self.expected, self.expected_distinct)


def run(contender: str, place: Place, broker_pid: int, seconds: float) -> Trickle:
    """Start it on an empty input, send :data:`RATE` messages/s, measure for so long once it has warmed up.

    Raises:
        BenchError: it ended, or messages are missing after :data:`LIMIT_S`.
    """
    topics.create(place.bootstrap, place.input, place.plan.partitions)
    ready = startup.prepare(contender, place)
    job, log = ready.job, place.folder / "output.log"
    try:
        for topic in (place.input, job.output):
            topics.settle(place.bootstrap, topic, job.partitions)
        with contextlib.ExitStack() as resources:
            reader = resources.enter_context(Reader(place.bootstrap, job.output, job.partitions))
            child = resources.enter_context(
                measure.child([job.program, *job.command], log, job.folder, dict(job.environ))
            )
            with Traffic(place.bootstrap, place.input, place.plan, RATE) as traffic:
                _until(lambda: bool(reader.seen()), "nothing has come out", child)
                time.sleep(WARM_UP_S)
                began, before, broker_before = time.time(), child.read(), measure.read(broker_pid)
                time.sleep(seconds)
                ended, after, broker_after = time.time(), child.read(), measure.read(broker_pid)
            expected = traffic.sent if contender in COPIES else traffic.originals
            _until(
                lambda: len(reader.seen()) >= expected,
                f"less than {expected:,} messages have come out",
                child,
            )
            seen = reader.seen()
            child.stop()
        counted = topics.count(place.bootstrap, job.output, job.partitions)
    finally:
        topics.delete(place.bootstrap, [place.input, job.output, *ready.internal])
    waits = sorted(item.seen_at - item.produced_at for item in seen if began <= item.produced_at < ended)
    messages = round(RATE * (ended - began))
    return Trickle(
        messages=messages,
        p50_s=quantile(waits, 0.5),
        p99_s=quantile(waits, 0.99),
        max_s=waits[-1],
        cpu_s_per_million=(after.cpu_s - before.cpu_s) / messages * 1e6,
        broker_cpu_s_per_million=(broker_after.cpu_s - broker_before.cpu_s) / messages * 1e6,
        outputs=counted.records,
        distinct_outputs=counted.distinct,
        expected=expected,
        expected_distinct=traffic.originals,
    )


def _until(condition: Callable[[], bool], otherwise: str, child: Child) -> None:
    """Wait for it, as long as the contender runs."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        child.read()
        if time.monotonic() > deadline:
            raise BenchError(f"{otherwise} after {LIMIT_S:.0f} s:\n{child.tail()}")
        time.sleep(_POLL_S)
