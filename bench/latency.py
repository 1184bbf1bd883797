"""Measure the latency of an idle worker, the speed of a worker with a backlog, and the cost of both.

Versions of the project take turns on one broker, so that a disturbance of the machine affects all of them.
"""

import contextlib
import itertools
import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.console import Console

from app.embedded.broker import EmbeddedBroker
from bench import measure, topics, worker_log
from bench.clusters import RESULTS, temporary_broker
from bench.contenders import ringfence
from bench.errors import BenchError
from bench.job import Job, Run, perform, quantile
from bench.latency_results import WARM_UP_S, Found, Load, Steady, save, show
from bench.measure import ROOT, Child
from bench.steady import Reader, Traffic
from bench.takeover import longest_silence
from bench.traffic import Plan, generate, publish

HERE: Final = "here"
"""The version that this file belongs to."""
BACKLOG: Final = "latency-backlog"
LIMIT_S: Final = 90.0
_POLL_S: Final = 0.1

Say = Callable[[str], None]


TARGET: Final = "RINGFENCE_APP__LATENCY_TARGET_MS"


class Version(NamedTuple):
    """A version of the project that is measured in turn with others."""

    root: Path
    """Folder of a checkout."""
    target_ms: int = 0
    """0 = its own default."""
    lanes: int = 0
    """Lanes of the address; 0 = one for each partition."""

    @property
    def environ(self) -> dict[str, str]:
        """Its settings."""
        return {TARGET: str(self.target_ms)} if self.target_ms else {}


def run(
    broker: EmbeddedBroker, folder: Path, load: Load, versions: Mapping[str, Version], rounds: int, say: Say
) -> Found:
    """Let each version run in each round, beginning with another one each time.

    Args:
        broker: Broker of all versions.
        folder: For their configuration, state and logs.
        load: Work of each version.
        versions: By name.
        rounds: How often.
        say: Called with progress texts.

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
                done = _backlog(broker, folder, load, versions[name], f"latency-{next(numbers)}", expected)
                found.backlog.setdefault(name, []).append(done)
                say(f"  {name}: {done.rate:,.0f} messages/s, {done.cpu_s_per_million:.2f} CPU s a million")
    return found


def _line(steady: Steady) -> str:
    return (
        f"p50 {steady.p50_s * 1000:.0f} ms, p99 {steady.p99_s * 1000:.0f}, largest {steady.max_s * 1000:.0f}, "
        f"{steady.cpu_s_per_million:.1f} CPU s a million, {steady.messages / max(steady.transactions, 1):.0f} messages a transaction"
    )


def _steady(broker: EmbeddedBroker, folder: Path, load: Load, version: Version, name: str) -> Steady:
    """Steady traffic through a worker that begins with empty topics; measured once it has warmed up."""
    bootstrap, plan = broker.bootstrap_servers, load.plan
    topics.create(bootstrap, name, plan.partitions)
    worker = ringfence.prepare(
        folder / name, bootstrap, name, name, load.ring, load.partitioner, plan.partitions, version.lanes
    )
    log = folder / name / "output.log"
    with contextlib.ExitStack() as resources:
        child = resources.enter_context(
            measure.child([sys.executable, *worker.command], log, version.root, version.environ)
        )
        _until(lambda: _ready(log), "the worker is not ready", child)
        reader = resources.enter_context(Reader(bootstrap, worker.output, plan.partitions))
        with Traffic(bootstrap, name, plan, load.rate) as traffic:
            time.sleep(WARM_UP_S)
            began, before, broker_before = time.time(), child.read(), measure.cpu_s([broker.pid])
            transactions = _transactions(worker)
            time.sleep(load.seconds)
            ended, after, broker_after = time.time(), child.read(), measure.cpu_s([broker.pid])
            transactions = _transactions(worker) - transactions
        _until(lambda: len(reader.seen()) >= traffic.originals, "messages are missing", child)
        seen = reader.seen()
        child.stop()
    if len(seen) != traffic.originals:
        raise BenchError(f"{len(seen)} messages came out of {traffic.originals}")
    topics.delete(bootstrap, [name, worker.output, *worker.more_topics])
    waits = sorted(item.seen_at - item.produced_at for item in seen if began <= item.produced_at < ended)
    messages = round(load.rate * (ended - began))
    return Steady(
        messages=messages,
        p50_s=quantile(waits, 0.5),
        p99_s=quantile(waits, 0.99),
        p999_s=quantile(waits, 0.999),
        max_s=waits[-1],
        silence_s=longest_silence(
            [item for item in seen if item.seen_at < ended], range(plan.partitions), began
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
    return sum(lane.get("batches", 0) for lane in lanes.values())


def _until(condition: Callable[[], bool], otherwise: str, child: Child) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"{otherwise} after {LIMIT_S:.0f} s:\n{child.tail()}")
        time.sleep(_POLL_S)


def _backlog(
    broker: EmbeddedBroker, folder: Path, load: Load, version: Version, name: str, expected: int
) -> Run:
    """All that is in the topic, as fast as it goes."""
    plan, bootstrap = load.plan, broker.bootstrap_servers
    worker = ringfence.prepare(
        folder / name, bootstrap, name, BACKLOG, load.ring, load.partitioner, plan.partitions, version.lanes
    )
    job = Job(
        name, worker.command, name, BACKLOG, worker.output, plan.partitions, plan.messages, worker.forward, folder=version.root
    )  # fmt: skip
    done = perform(job, bootstrap, [broker.pid], folder / name / "output.log")
    if done.outputs != expected or done.distinct_outputs != expected or done.out_of_order:
        raise BenchError(
            f"{done.outputs} messages came out of {expected}, {done.distinct_outputs} different, {done.out_of_order} out of order"
        )
    topics.delete(bootstrap, [worker.output, *worker.more_topics])
    return done


@click.command("latency")
@click.option(
    "--rate",
    type=click.IntRange(min=0),
    default=5_000,
    show_default=True,
    help="Messages a second; 0: backlog only.",
)
@click.option("--seconds", type=click.FloatRange(min=1), default=30.0, show_default=True)
@click.option("--partitions", type=click.IntRange(min=1), default=4, show_default=True)
@click.option(
    "--partitioner",
    type=click.Choice(["murmur2", "crc32"]),
    default="murmur2",
    show_default=True,
    help="crc32: most are forwarded.",
)
@click.option("--backlog", type=click.IntRange(min=0), default=1_000_000, show_default=True, help="0: none.")
@click.option("--value-bytes", type=click.IntRange(min=20), default=100, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--target-ms",
    "targets",
    type=click.IntRange(min=1),
    multiple=True,
    help="app.latency_target_ms; may be repeated, for a curve. Without it, its default.",
)
@click.option(
    "--lanes",
    type=click.IntRange(min=1),
    multiple=True,
    help="Also an address with so many lanes, beside one with a lane for each partition. May be repeated.",
)
@click.option(
    "--beside",
    type=(str, click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path)),
    multiple=True,
    metavar="NAME FOLDER",
    help="Another checkout, measured in turn with this one. May be repeated.",
)
def command(
    rate: int,
    seconds: float,
    partitions: int,
    partitioner: str,
    backlog: int,
    value_bytes: int,
    rounds: int,
    targets: tuple[int, ...],
    lanes: tuple[int, ...],
    beside: tuple[tuple[str, Path], ...],
) -> None:
    """Measure the latency of messages through an idle worker, and its cost; and a backlog beside it."""
    console = Console()
    plan = Plan(backlog, partitions, value_bytes=value_bytes)
    load = Load(rate, seconds, backlog, plan, partitioner)
    versions = {
        f"{name}, {target} ms" if target else name: Version(root, target)
        for name, root in beside
        for target in targets or (0,)
    }
    versions |= {f"{target} ms": Version(ROOT, target) for target in targets} or {HERE: Version(ROOT)}
    versions |= {f"lanes = {number}": Version(ROOT, lanes=number) for number in lanes}
    with temporary_broker() as (broker, folder):
        found = run(broker, folder, load, versions, rounds, console.print)
    show(found, console)
    save(found, RESULTS / "latency.json")
