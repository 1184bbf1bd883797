"""How long a message takes through a worker that is not busy, how fast one is that has a backlog, and what both cost.

Versions of the project take turns on one broker, so that what disturbs the machine disturbs all of them.
"""

import contextlib
import itertools
import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench import measure, topics, worker_log
from bench.contenders import ringfence
from bench.errors import BenchError
from bench.job import Job, Run, perform, quantile, spread
from bench.measure import Child, Cluster
from bench.steady import LINGER_MS, Reader, Traffic
from bench.table import machine
from bench.takeover import longest_silence
from bench.traffic import Plan, generate, publish

HERE: Final = "here"
"""The version that this file belongs to."""
BACKLOG: Final = "latency-backlog"
WARM_UP_S: Final = 10.0
"""After that Java has compiled what the broker runs."""
LIMIT_S: Final = 90.0
_POLL_S: Final = 0.1
_ROUGH: Final = 100
"""From here on digits behind the point say nothing."""

Say = Callable[[str], None]


TARGET: Final = "RINGFENCE_APP__LATENCY_TARGET_MS"


class Version(NamedTuple):
    """What is measured in turn with others."""

    root: Path
    """Of a checkout."""
    target_ms: int = 0
    """0 = its own default."""

    @property
    def environ(self) -> dict[str, str]:
        """Its settings."""
        return {TARGET: str(self.target_ms)} if self.target_ms else {}


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of each version, each round."""

    rate: int
    """Messages a second, all partitions together; 0 = this is left out."""
    seconds: float
    """Measured, after :data:`WARM_UP_S`."""
    backlog: int
    """Messages; 0 = this is left out."""
    plan: Plan
    partitioner: str = "murmur2"
    """``crc32``: three of four messages are forwarded."""
    linger_ms: int = LINGER_MS
    """How long the producer waits for more."""

    @property
    def ring(self) -> int:
        """IDs a lane remembers: where messages are forwarded, all; a home lane hears from partitions that are not in step."""
        if self.partitioner == "murmur2":
            return self.plan.ring
        return max(self.plan.forwarded_ring, round(self.rate * (WARM_UP_S + self.seconds) * 2))


@dataclass(frozen=True, slots=True)
class Steady:
    """One version under steady traffic. All seconds are from a message's making to its being read as accepted."""

    messages: int
    """Resends included."""
    p50_s: float
    p99_s: float
    p999_s: float
    max_s: float
    silence_s: float
    """The longest time between two accepted messages of one input partition."""
    cpu_s_per_million: float
    broker_cpu_s_per_million: float
    transactions: int
    load_average: float
    """Of the machine, in the minute at whose end it was measured."""


@dataclass(slots=True)
class Found:
    """Everything measured, by version; a round is a place in the lists."""

    load: Load
    steady: dict[str, list[Steady]] = field(default_factory=dict)
    backlog: dict[str, list[Run]] = field(default_factory=dict)


def run(
    broker: Cluster, folder: Path, load: Load, versions: Mapping[str, Version], rounds: int, say: Say
) -> Found:
    """Let each version run in each round, beginning with another one each time.

    Args:
        broker: What all of them use.
        folder: For their configuration, state and logs.
        load: What they do.
        versions: By name.
        rounds: How often.
        say: Told what happens.

    Raises:
        BenchError: a worker ended, stood still, or its output is not exact.
    """
    found = Found(load)
    numbers = itertools.count(1)
    expected = 0
    if load.backlog:
        say(f"producing {load.backlog:,} messages")
        topics.create(broker.bootstrap_servers, BACKLOG, load.plan.partitions)
        expected = publish(broker.bootstrap_servers, BACKLOG, generate(load.plan)).distinct
    for number in range(rounds):
        names = list(versions)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            if load.rate:
                steady = _steady(broker, folder, load, versions[name], f"latency-{next(numbers)}")
                found.steady.setdefault(name, []).append(steady)
                say(f"  {name}: {_line(steady)}")
            if load.backlog:
                done = _backlog(
                    broker, folder, load, versions[name].root, f"latency-{next(numbers)}", expected
                )
                found.backlog.setdefault(name, []).append(done)
                say(f"  {name}: {done.rate:,.0f} messages/s, {done.cpu_s_per_million:.2f} CPU s a million")
    return found


def _line(steady: Steady) -> str:
    return (
        f"p50 {steady.p50_s * 1000:.0f} ms, p99 {steady.p99_s * 1000:.0f}, largest {steady.max_s * 1000:.0f}, "
        f"{steady.cpu_s_per_million:.1f} CPU s a million, {steady.messages / max(steady.transactions, 1):.0f} messages a transaction"
    )


def _steady(broker: Cluster, folder: Path, load: Load, version: Version, name: str) -> Steady:
    """Steady traffic through a worker that begins with empty topics; measured once it has warmed up."""
    bootstrap, plan = broker.bootstrap_servers, load.plan
    topics.create(bootstrap, name, plan.partitions)
    worker = ringfence.prepare(
        folder / name, bootstrap, name, name, load.ring, load.partitioner, plan.partitions
    )
    log = folder / name / "output.log"
    with contextlib.ExitStack() as resources:
        child = resources.enter_context(
            measure.child([sys.executable, *worker.command], log, version.root, version.environ)
        )
        _until(lambda: _ready(log), "the worker is not ready", child)
        reader = resources.enter_context(Reader(bootstrap, worker.output, plan.partitions))
        with Traffic(bootstrap, name, plan, load.rate, load.linger_ms) as traffic:
            time.sleep(WARM_UP_S)
            began, before, broker_before = time.time(), child.read(), measure.cpu_s(broker.pids)
            transactions = _transactions(worker)
            time.sleep(load.seconds)
            ended, after, broker_after = time.time(), child.read(), measure.cpu_s(broker.pids)
            transactions = _transactions(worker) - transactions
        _until(lambda: len(reader.seen()) >= traffic.originals, "messages are missing", child)
        seen = reader.seen()
        child.stop()
    if len(seen) != traffic.originals:
        raise BenchError(f"{len(seen)} messages came out of {traffic.originals}")
    topics.delete(bootstrap, [name, worker.output, worker.forward, *worker.more_topics])
    waits = sorted(each.seen_at - each.produced_at for each in seen if began <= each.produced_at < ended)
    messages = round(load.rate * (ended - began))
    return Steady(
        messages=messages,
        p50_s=quantile(waits, 0.5),
        p99_s=quantile(waits, 0.99),
        p999_s=quantile(waits, 0.999),
        max_s=waits[-1],
        silence_s=longest_silence(
            [each for each in seen if each.seen_at < ended], range(plan.partitions), began
        ),
        cpu_s_per_million=(after.cpu_s - before.cpu_s) / messages * 1e6,
        broker_cpu_s_per_million=(broker_after - broker_before) / messages * 1e6,
        transactions=transactions,
        load_average=os.getloadavg()[0],
    )


def _ready(log: Path) -> bool:
    return worker_log.settled(worker_log.events(log.read_text("utf-8", "replace"))) is not None


def _transactions(worker: ringfence.Worker) -> int:
    """Those that it has committed, by its own count."""
    with urllib.request.urlopen(f"http://{ringfence.HOST}:{worker.command[-1]}/health") as answer:
        lanes = json.load(answer)["lanes"]
    return sum(each.get("batches", 0) for each in lanes.values())


def _until(condition: Callable[[], bool], otherwise: str, child: Child) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"{otherwise} after {LIMIT_S:.0f} s:\n{child.tail()}")
        time.sleep(_POLL_S)


def _backlog(broker: Cluster, folder: Path, load: Load, root: Path, name: str, expected: int) -> Run:
    """All that is in the topic, as fast as it goes."""
    plan, bootstrap = load.plan, broker.bootstrap_servers
    worker = ringfence.prepare(
        folder / name, bootstrap, name, BACKLOG, load.ring, load.partitioner, plan.partitions
    )
    job = Job(
        name, worker.command, name, BACKLOG, worker.output, plan.partitions, plan.messages, worker.forward, folder=root
    )  # fmt: skip
    done = perform(job, bootstrap, broker.pids, folder / name / "output.log")
    if done.outputs != expected or done.distinct_outputs != expected or done.out_of_order:
        raise BenchError(
            f"{done.outputs} messages came out of {expected}, {done.distinct_outputs} different, {done.out_of_order} out of order"
        )
    topics.delete(bootstrap, [worker.output, worker.forward, *worker.more_topics])
    return done


# -- what it says ----------------------------------------------------------------------------------------------


def figures(found: Found) -> Iterator[tuple[str, str, list[float]]]:
    """What was measured → version → its value in each round."""
    for name, runs in found.steady.items():
        yield "latency, median, ms", name, [each.p50_s * 1000 for each in runs]
        yield "latency, p99, ms", name, [each.p99_s * 1000 for each in runs]
        yield "latency, p99.9, ms", name, [each.p999_s * 1000 for each in runs]
        yield "latency, largest, ms", name, [each.max_s * 1000 for each in runs]
        yield "longest silence of a lane, ms", name, [each.silence_s * 1000 for each in runs]
        yield "messages a transaction", name, [each.messages / max(each.transactions, 1) for each in runs]
        yield "CPU s / million", name, [each.cpu_s_per_million for each in runs]
        yield "broker's CPU s / million", name, [each.broker_cpu_s_per_million for each in runs]
    for name, done in found.backlog.items():
        yield "backlog, messages/s", name, [each.rate for each in done]
        yield "backlog, CPU s / million", name, [each.cpu_s_per_million for each in done]
        yield (
            "backlog, broker's CPU s / million",
            name,
            [each.broker_cpu_s / each.measured * 1e6 for each in done],
        )


def show(found: Found, console: Console) -> None:
    """Print medians with the smallest and largest, and ratios, a pair a round, to the first version."""
    by_figure: dict[str, dict[str, list[float]]] = {}
    for what, name, values in figures(found):
        by_figure.setdefault(what, {})[name] = values
    table = Table("", "", "median (smallest to largest)", "ratio")
    for what, by_name in by_figure.items():
        first = next(iter(by_name))
        for name, values in by_name.items():
            table.add_row(
                what if name == first else "",
                name,
                _cell(values, 0 if max(values) >= _ROUGH else 1),
                ""
                if name == first
                else _cell([one / two for one, two in zip(values, by_name[first], strict=True)], 2),
            )
        table.add_section()
    console.print(table)


def _cell(values: Sequence[float], digits: int) -> str:
    low, median, high = spread(values)
    return f"{median:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def save(found: Found, path: Path) -> None:
    """Write everything."""
    document: dict[str, Any] = {
        **machine(),
        "load": asdict(found.load),
        "steady": {name: [asdict(each) for each in runs] for name, runs in found.steady.items()},
        "backlog": {
            name: [
                {**asdict(each), "messages_per_s": each.rate, "cpu_s_per_million": each.cpu_s_per_million}
                for each in runs
            ]
            for name, runs in found.backlog.items()
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
