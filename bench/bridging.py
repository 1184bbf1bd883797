"""A bridge beside a lane, and beside MirrorMaker 2; the two that cross clusters also over a slow link."""

import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka import KafkaException
from rich.console import Console
from rich.table import Table

from bench import topics
from bench.clusters import RESULTS, Clusters, clusters
from bench.contenders import bridge, mirror_maker, ringfence
from bench.errors import EXIT_NOT_WELL, BenchError
from bench.job import Job, Run, Target, perform, spread
from bench.table import machine
from bench.traffic import MESSAGES_MIN, Expected, Plan, generate, publish

INPUT: Final = "bench"
LANE: Final = "lane"
BRIDGE: Final = "bridge"
MIRROR: Final = "MirrorMaker 2"
FAR_BRIDGE: Final = "bridge, slow link"
FAR_MIRROR: Final = "MirrorMaker 2, slow link"
CONTENDERS: Final = {
    "lane": LANE,
    "bridge": BRIDGE,
    "mirror": MIRROR,
    "far-bridge": FAR_BRIDGE,
    "far-mirror": FAR_MIRROR,
}
"""As ``--only`` names them; in this order, or the reverse one, they run in a round."""
COMPARED: Final = ((BRIDGE, LANE), (BRIDGE, MIRROR), (FAR_BRIDGE, FAR_MIRROR))
"""Each by the other."""
_MIB: Final = 2**20

Say = Callable[[str], None]


@dataclass(slots=True)
class Found:
    """Everything that is known at the end."""

    plan: Plan
    round_trip_s: float
    expected: Expected | None = None
    rounds: list[dict[str, Run]] = field(default_factory=list)
    """A round's runs by contender; a failed one is missing."""
    failures: list[str] = field(default_factory=list)

    def runs(self, contender: str) -> list[Run]:
        """All runs of a contender, in order."""
        return [round_[contender] for round_ in self.rounds if contender in round_]

    def exact(self, contender: str) -> bool:
        """Whether each run's output is what is expected: of the lane each ID once, of the others each message; in order."""
        expected = self.expected
        if expected is None:
            return False
        total = expected.distinct if contender == LANE else expected.total
        return all(
            (run.outputs, run.distinct_outputs, run.out_of_order) == (total, expected.distinct, 0)
            for run in self.runs(contender)
        )

    def ratios(self, contender: str, other: str) -> dict[str, list[float]]:
        """Return the contender's figure by the other's, a pair a round."""
        pairs = [
            (round_[contender], round_[other])
            for round_ in self.rounds
            if contender in round_ and other in round_
        ]
        if not pairs:
            return {}
        return {
            "messages/s": [one.rate / two.rate for one, two in pairs],
            "CPU s / million": [one.cpu_s_per_million / two.cpu_s_per_million for one, two in pairs],
            "peak RSS": [one.peak_rss_bytes / two.peak_rss_bytes for one, two in pairs],
        }


def run(folder: Path, plan: Plan, rounds: int, round_trip_s: float, only: Sequence[str], say: Say) -> Found:
    """All contenders in turn, each over the same topic, and each round in the other order.

    Args:
        folder: For brokers, configuration and logs.
        plan: The traffic.
        rounds: How often.
        round_trip_s: Over the slow link; 0 = those that use it are left out.
        only: Contenders.
        say: Told what happens.

    Raises:
        PrerequisiteError: no Java, or jars could not be fetched.
    """
    found = Found(plan, round_trip_s)
    chosen = [contender for contender in CONTENDERS.values() if contender in only]
    if not round_trip_s:
        chosen = [name for name in chosen if name not in {FAR_BRIDGE, FAR_MIRROR}]
    with clusters(folder, round_trip_s) as two:
        say(f"producing {plan.messages:,} messages")
        topics.create(two.source.bootstrap_servers, INPUT, plan.partitions)
        found.expected = publish(two.source.bootstrap_servers, INPUT, generate(plan))
        contest = _Contest(two, folder, plan)
        for number in range(rounds):
            found.rounds.append({})
            for contender in chosen if number % 2 == 0 else chosen[::-1]:
                say(f"{contender}: {plan.messages:,} messages")
                try:
                    done = contest.run(contender)
                except (BenchError, KafkaException) as error:
                    found.failures.append(str(error))
                    say(f"  failed: {error}")
                    continue
                found.rounds[-1][contender] = done
                say(
                    f"  {done.rate:,.0f} messages/s, {done.cpu_s_per_million:.2f} CPU s per million, {done.outputs:,} outputs"
                )
    return found


class _Contest:
    """Runs the contenders on two brokers; each run has names of its own."""

    def __init__(self, two: Clusters, folder: Path, plan: Plan) -> None:
        self._two = two
        self._source = two.source.bootstrap_servers
        self._target = two.target.bootstrap_servers
        self._folder = folder
        self._plan = plan
        self._numbers = itertools.count(1)

    def run(self, contender: str) -> Run:
        name = f"bench-{next(self._numbers)}"
        if contender == LANE:
            return self._lane(name)
        server = self._two.link.bootstrap if contender in {FAR_BRIDGE, FAR_MIRROR} else self._target
        make = self._bridge if contender in {BRIDGE, FAR_BRIDGE} else self._mirror
        return make(contender, name, server)

    def _lane(self, name: str) -> Run:
        plan = self._plan
        worker = ringfence.prepare(
            self._folder / name, self._source, name, INPUT, plan.ring, partitions=plan.partitions
        )
        job = Job(
            LANE, worker.command, name, INPUT, worker.output, plan.partitions, plan.messages, worker.forward
        )
        try:
            return self._perform(job, name)
        finally:
            topics.delete(self._source, [worker.output, *worker.more_topics])

    def _bridge(self, contender: str, name: str, server: str) -> Run:
        output = f"{name}-bridged"
        made = bridge.prepare(self._folder / name, self._source, INPUT, server, output, name)
        return self._across(self._job(contender, made.command, made.group, output), name, made.more_topics)

    def _mirror(self, contender: str, name: str, server: str) -> Run:
        plan = self._plan
        made = mirror_maker.prepare(self._folder / name, self._source, INPUT, server, plan.partitions, name)
        job = self._job(contender, made.command, name, made.output, made.program)
        try:
            return self._across(job, name, made.more_topics)
        finally:
            topics.delete(self._source, made.source_topics)

    def _job(
        self, contender: str, command: tuple[str, ...], group: str, output: str, program: str = ""
    ) -> Job:
        plan, target = self._plan, Target(self._target, self._two.target.pid)
        job = Job(contender, command, group, INPUT, output, plan.partitions, plan.messages, target=target)
        return replace(job, program=program) if program else job

    def _across(self, job: Job, name: str, more_topics: Sequence[str]) -> Run:
        topics.create(self._target, job.output, job.partitions)
        try:
            return self._perform(job, name)
        finally:
            topics.delete(self._target, [job.output, *more_topics])

    def _perform(self, job: Job, name: str) -> Run:
        return perform(job, self._source, [self._two.source.pid], self._folder / name / "output.log")


# -- what it says ----------------------------------------------------------------------------------------------


def show(found: Found, console: Console) -> None:
    """Print medians with the smallest and largest, ratios, a pair a round, and what failed."""
    ran = [contender for contender in CONTENDERS.values() if found.runs(contender)]
    table = Table("", *ran)
    for what, cells in _figures(found, ran):
        table.add_row(what, *cells)
    console.print(table)
    console.print(
        f"Median (smallest to largest). The slow link: {found.round_trip_s * 1000:g} ms there and back."
    )
    for compared in COMPARED:
        for name, values in found.ratios(*compared).items():
            pairs = ", ".join(f"{value:.2f}" for value in values)
            console.print(
                f"{name}, {' / '.join(compared)}, pair by pair: {pairs}; median {spread(values)[1]:.2f}"
            )
    for failure in found.failures:
        console.print(f"failed: {failure}", markup=False)


def _figures(found: Found, ran: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    def row(what: str, figure: Callable[[Run], float], digits: int) -> tuple[str, list[str]]:
        return what, [_range([figure(run) for run in found.runs(name)], digits) for name in ran]

    yield row("messages/s", lambda each: each.rate, 0)
    yield row("CPU s / million", lambda each: each.cpu_s_per_million, 2)
    yield row("brokers' CPU s / million", lambda each: each.broker_cpu_s / each.measured * 1e6, 2)
    yield row("peak RSS, MiB", lambda each: each.peak_rss_bytes / _MIB, 0)
    yield "exact", ["yes" if found.exact(name) else "NO" for name in ran]


def _range(values: list[float], digits: int) -> str:
    low, median, high = spread(values)
    if len(values) == 1:
        return f"{median:,.{digits}f}"
    return f"{median:,.{digits}f}\n({low:,.{digits}f} to {high:,.{digits}f})"


def save(found: Found, path: Path) -> None:
    """Write everything."""
    document: dict[str, Any] = {
        **machine(),
        "plan": asdict(found.plan),
        "round_trip_s": found.round_trip_s,
        "expected": None if found.expected is None else asdict(found.expected),
        "runs": [
            {
                "round": number,
                **asdict(run),
                "messages_per_s": run.rate,
                "cpu_s_per_million": run.cpu_s_per_million,
            }
            for number, runs in enumerate(found.rounds, 1)
            for run in runs.values()
        ],
        "ratios": {" / ".join(item): found.ratios(*item) for item in COMPARED},
        "exact": {
            contender: found.exact(contender) for contender in CONTENDERS.values() if found.runs(contender)
        },
        "failures": found.failures,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


@click.command("bridge")
@click.option("--messages", type=click.IntRange(min=MESSAGES_MIN), default=1_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--rtt-ms",
    type=click.FloatRange(min=0),
    default=50.0,
    show_default=True,
    help="Of the slow link; 0: none.",
)
@click.option("--partitions", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--only", type=click.Choice(list(CONTENDERS)), multiple=True, help="May be repeated.")
def command(messages: int, rounds: int, rtt_ms: float, partitions: int, only: tuple[str, ...]) -> None:
    """Measure a bridge beside a worker's lanes and beside MirrorMaker 2, also over a slow link."""
    console = Console()
    chosen = [CONTENDERS[name] for name in only or CONTENDERS]
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        found = run(Path(name), Plan(messages, partitions), rounds, rtt_ms / 1000, chosen, console.print)
    show(found, console)
    save(found, RESULTS / "bridge.json")
    if found.failures or not all(found.exact(name) for name in chosen):
        sys.exit(EXIT_NOT_WELL)
