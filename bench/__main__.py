"""``python -m bench``: see README.md beside this file."""

import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
from confluent_kafka import KafkaException
from rich.console import Console

from app.embedded.broker import EmbeddedBroker
from bench import (
    backlog,
    bridging,
    consume,
    handover,
    lanes,
    latency,
    lease_load,
    ledger,
    memory,
    moves,
    profile,
    reconcile,
    recovery,
    replicas,
    rings,
    scale,
    scale_plot,
    table,
    wide,
)
from bench.contest import CONTENDERS, Contest, Outcome
from bench.errors import BenchError
from bench.measure import ROOT
from bench.starting import PLAIN, missing
from bench.traffic import Plan
from bench.trickle import RATE
from conf import terminal
from ringfence_kafka.errors import RingfenceError

RESULTS: Final = Path(__file__).parent / "results" / "latest.json"
BRIDGE_RESULTS: Final = RESULTS.with_name("bridge.json")
RECOVERY_RESULTS: Final = RESULTS.with_name("recovery.json")
CONSUME_RESULTS: Final = RESULTS.with_name("consume.json")
HANDOVER_RESULTS: Final = RESULTS.with_name("handover.json")
LANES_RESULTS: Final = RESULTS.with_name("lanes.json")
LATENCY_RESULTS: Final = RESULTS.with_name("latency.json")
LEDGER_RESULTS: Final = RESULTS.with_name("ledger.json")
RECONCILE_RESULTS: Final = RESULTS.with_name("reconcile.json")
WIDE_RESULTS: Final = RESULTS.with_name("wide.json")
MEMORY_RESULTS: Final = RESULTS.with_name("memory.json")
BACKLOG_RESULTS: Final = RESULTS.with_name("backlog.json")
MOVES_RESULTS: Final = RESULTS.with_name("moves.json")
RINGS_RESULTS: Final = RESULTS.with_name("rings.json")
SCALE_RESULTS: Final = RESULTS.with_name("scale.json")
SCALE_PLOT: Final = ROOT / "docs" / "images" / "scale.svg"
QUICK_MESSAGES: Final = 100_000
QUICK_TRICKLE_S: Final = 5.0
PLAIN_SHARE: Final = 50
"""The plain agent gets one message of so many: at its pace the whole would take minutes to hours."""
PLAIN_MESSAGES_MIN: Final = 20_000
"""Some ten seconds of work for it."""
EXIT_NOT_WELL: Final = 1
EXIT_COULD_NOT_RUN: Final = 2
EXIT_TERMINATED: Final = 143
_MESSAGES_MIN: Final = 50_000


_beside = click.option(
    "--beside",
    type=(str, click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path)),
    multiple=True,
    metavar="NAME FOLDER",
    help="Another checkout, measured in turn with this one. May be repeated.",
)


@contextmanager
def _broker(properties: Mapping[str, str] | None = None) -> Iterator[tuple[EmbeddedBroker, Path]]:
    """A broker and a folder, both gone at the end."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        folder = Path(name)
        with EmbeddedBroker(folder / "broker", properties=properties) as broker:
            yield broker, folder


@click.group(invoke_without_command=True)
@click.option("--messages", type=click.IntRange(min=_MESSAGES_MIN), default=1_000_000, show_default=True)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Of all but the plain agent."
)
@click.option("--quick", is_flag=True, help=f"{QUICK_MESSAGES:,} messages, one round: to see that it works.")
@click.option(
    "--trickle",
    type=click.FloatRange(min=0),
    default=20.0,
    show_default=True,
    help=f"Seconds of {RATE:,} messages/s; 0: none.",
)
@click.option("--only", type=click.Choice(list(CONTENDERS)), multiple=True, help="May be repeated.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the traffic.")
@click.pass_context
def main(
    context: click.Context,
    messages: int,
    rounds: int,
    quick: bool,
    trickle: float,
    only: tuple[str, ...],
    seed: int,
) -> None:
    """Measure Ringfence, at home and forwarding, beside what else does the job, and beside copies without a ring."""
    if context.invoked_subcommand:
        return
    if quick:
        messages, rounds, trickle = QUICK_MESSAGES, 1, min(trickle, QUICK_TRICKLE_S)
    chosen = [CONTENDERS[each] for each in only or CONTENDERS]
    plain = max(messages // PLAIN_SHARE, PLAIN_MESSAGES_MIN)
    outcome = Outcome(Plan(messages, seed=seed), Plan(plain, seed=seed))
    outcome.left_out = {each: reason for each in chosen if (reason := missing(each))}
    if only and outcome.left_out:
        raise BenchError("\n".join(f"{each}: {reason}" for each, reason in outcome.left_out.items()))
    chosen = [each for each in chosen if each not in outcome.left_out]
    console = terminal.console()
    with _broker() as (broker, folder):
        Contest(broker, folder, outcome, console.print).run(rounds, chosen, trickle)
    table.show(outcome, console)
    table.save(outcome, RESULTS)
    # The plain agent's exactness is a finding, not a fault of the benchmark.
    exact = all(outcome.exact(each) for each in chosen if each != PLAIN)
    complete = not outcome.failures
    if not (exact and complete):
        sys.exit(EXIT_NOT_WELL)


@main.command("profile")
@click.option("--messages", type=click.IntRange(min=_MESSAGES_MIN), default=500_000, show_default=True)
@click.option(
    "--functions", type=click.IntRange(min=0), default=20, show_default=True, help="Shown below the areas."
)
def profile_command(messages: int, functions: int) -> None:
    """Show where a Ringfence worker spends its CPU time, by area and by function."""
    with _broker() as (broker, folder):
        profile.run(broker, folder, Plan(messages), functions, Console())


@main.command("latency")
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
@_beside
def latency_command(
    rate: int,
    seconds: float,
    partitions: int,
    partitioner: str,
    backlog: int,
    value_bytes: int,
    rounds: int,
    targets: tuple[int, ...],
    beside: tuple[tuple[str, Path], ...],
) -> None:
    """Measure how long messages take through a worker that is not busy, and what that costs; and a backlog beside it."""
    console = Console()
    plan = Plan(backlog, partitions, value_bytes=value_bytes)
    load = latency.Load(rate, seconds, backlog, plan, partitioner)
    versions = {
        f"{name}, {each} ms" if each else name: latency.Version(root, each)
        for name, root in beside
        for each in targets or (0,)
    }
    versions |= {f"{each} ms": latency.Version(ROOT, each) for each in targets} or {
        latency.HERE: latency.Version(ROOT)
    }
    with _broker() as (broker, folder):
        found = latency.run(broker, folder, load, versions, rounds, console.print)
    latency.show(found, console)
    latency.save(found, LATENCY_RESULTS)


main.add_command(replicas.command)


@main.command("recovery")
@click.option(
    "--kills", type=click.IntRange(min=0), default=5, show_default=True, help="Workers ended by SIGKILL."
)
@click.option(
    "--stops", type=click.IntRange(min=0), default=5, show_default=True, help="Workers ended by SIGTERM."
)
@click.option("--restores", type=click.IntRange(min=0), default=3, show_default=True, help="Of each kind.")
@click.option(
    "--ids",
    type=click.IntRange(min=_MESSAGES_MIN),
    default=1_000_000,
    show_default=True,
    help="In the restored ring.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of traffic and moments.")
def recovery_command(kills: int, stops: int, restores: int, ids: int, seed: int) -> None:
    """Measure how long the lanes of an ended worker are missed, and how fast a ring comes back."""
    console = Console()
    with _broker() as (broker, folder):
        found = recovery.run(
            broker, folder, recovery.Repetitions(kills, stops, restores, ids, seed), console.print
        )
    recovery.show(found, console)
    recovery.save(found, RECOVERY_RESULTS)


@main.command("moves")
@click.option(
    "--ids",
    type=click.IntRange(min=1_000),
    multiple=True,
    default=(100_000, 1_000_000),
    show_default=True,
    help="In the ring of each lane. May be repeated.",
)
@click.option("--rate", type=click.IntRange(min=100), default=5_000, show_default=True, help="Messages/s.")
@click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True)
@_beside
def moves_command(ids: tuple[int, ...], rate: int, rounds: int, beside: tuple[tuple[str, Path], ...]) -> None:
    """Measure how long lanes are silent while a worker joins, leaves, returns and dies: those that stay, and those that move."""
    console = Console()
    versions = {**dict(beside), moves.HERE: ROOT}
    with _broker(moves.BROKER) as (broker, folder):
        found = moves.run(broker, folder, versions, ids, rounds, rate, console.print)
    moves.show(found, console)
    moves.save(found, MOVES_RESULTS)


@main.command("rings")
@click.option("--ids", type=click.IntRange(min=1_000), default=10_000_000, show_default=True)
@click.option(
    "--messages",
    type=click.IntRange(min=0),
    default=1_000_000,
    show_default=True,
    help="That a worker does with the full ring; 0: none.",
)
@click.option(
    "--only", type=click.Choice(rings.KINDS), multiple=True, help="May be repeated; without it the first two."
)
@click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True)
def rings_command(ids: int, messages: int, only: tuple[str, ...], rounds: int) -> None:
    """Measure one large ring: how it comes back, its memory and disk, look-ups, and a worker's cost with it."""
    console = Console()
    with _broker() as (broker, folder):
        found = rings.run(broker, folder, ids, messages, only or rings.KINDS[:2], rounds, console.print)
    rings.show(found, console)
    rings.save(found, RINGS_RESULTS)
    if not all(each.exact for each in found.worked):
        sys.exit(EXIT_NOT_WELL)


@main.command("scale")
@click.option(
    "--only",
    type=click.Choice(list(scale.SERIES)),
    multiple=True,
    help="May be repeated; the points of others stay as they were.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="The ends of each series with few messages: to see that it works. Nothing is kept.",
)
def scale_command(only: tuple[str, ...], quick: bool) -> None:
    """Measure how cost grows with duplicates, bytes, lanes and addresses, and draw it."""
    console = Console()
    with _broker() as (broker, folder):
        found = scale.run(broker, folder, scale.loads(only, quick=quick), console.print)
    if not quick:
        known = scale.save(found, SCALE_RESULTS)
        scale.show(known, console)
        scale_plot.draw(known, SCALE_PLOT)
    if not all(each.exact for each in found):
        sys.exit(EXIT_NOT_WELL)


@main.command("ledger")
@click.option("--rounds", type=click.IntRange(min=1), default=300, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="Of ages and chosen groups.")
def ledger_command(rounds: int, seed: int) -> None:
    """Measure what each call of the group ledger costs while few, many and a million groups wait; needs no broker."""
    console = Console()
    rigs = ledger.run(ledger.SIZES, rounds, seed, console.print)
    ledger.show(rigs, console)
    ledger.save(rigs, LEDGER_RESULTS)


@main.command("consume")
def consume_command() -> None:
    """Measure group-ordered consumption beside a plain consumer and the bound of groups and handlers."""
    console = Console()
    with _broker() as (broker, _):
        cells = consume.measure(broker, console.print)
        stuck = consume.measure_stuck(broker)
    consume.show(cells, stuck, console)
    CONSUME_RESULTS.write_text(consume.document(cells, stuck) + "\n")


@main.command("reconcile")
@click.option(
    "--records",
    type=click.IntRange(min=1),
    multiple=True,
    default=reconcile.SIZES,
    show_default=True,
    help="May be repeated.",
)
def reconcile_command(records: tuple[int, ...]) -> None:
    """Measure the nightly job: records a second, and memory."""
    console = Console()
    with _broker() as (broker, folder):
        runs = reconcile.run(broker.bootstrap_servers, folder, records, console.print)
    reconcile.show(runs, console)
    reconcile.save(runs, RECONCILE_RESULTS)


@main.command("wide")
@click.option("--partitions", type=click.IntRange(min=1), default=1_000, show_default=True)
def wide_command(partitions: int) -> None:
    """Measure how long a consumer takes to open an address of many partitions."""
    with _broker() as (broker, _):
        found = wide.run(broker.bootstrap_servers, partitions, Console().print)
    wide.save(found, WIDE_RESULTS)


@main.command("lanes")
@click.option("--lanes", "count", type=click.IntRange(min=1), default=1_000, show_default=True)
@click.option("--addresses", type=click.IntRange(min=1), default=10, show_default=True)
@click.option(
    "--idle", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds without messages."
)
def lanes_command(count: int, addresses: int, idle: float) -> None:
    """Measure a worker of many lanes: how it opens them, does nothing, shares them, and stops."""
    console = Console()
    with _broker() as (broker, folder):
        found = lanes.Bench(broker, folder, lanes.Shape(count, addresses, idle)).run(console.print)
    lanes.save(found, LANES_RESULTS)
    for each in found.inexact:
        console.print(each)
    if found.inexact:
        sys.exit(EXIT_NOT_WELL)


@main.command("memory", context_settings={"ignore_unknown_options": True})
@click.option("--partitions", type=click.IntRange(min=1), default=200, show_default=True)
@click.option(
    "--seconds",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    help="Each backlog is consumed for.",
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def memory_command(partitions: int, seconds: float, options: tuple[str, ...]) -> None:
    """Measure a consumer's memory before backlogs of small, middling and large messages. OPTIONS go to `consume`."""
    console = Console()
    with _broker() as (broker, folder):
        found = memory.run(broker.bootstrap_servers, folder, partitions, seconds, options, console.print)
    memory.show(found, console)
    memory.save(found, MEMORY_RESULTS)


@main.command("backlog")
@click.option("--messages", type=click.IntRange(min=100), default=5_000_000, show_default=True)
@click.option("--partitions", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--value-bytes", type=click.IntRange(min=1), default=100, show_default=True)
@click.option(
    "--output", type=click.Choice(backlog.OUTPUTS), multiple=True, help="May be repeated; all without it."
)
@click.option(
    "--seconds",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    help="The output is slow or refused for.",
)
@click.option("--buffer-mib", type=click.IntRange(0), default=0, help="app.buffer_bytes_max; 0: its default.")
@click.option(
    "--beside",
    type=(str, click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path)),
    multiple=True,
    metavar="NAME FOLDER",
    help="Another checkout, measured in turn with this one. May be repeated.",
)
def backlog_command(
    messages: int,
    partitions: int,
    value_bytes: int,
    output: tuple[str, ...],
    seconds: float,
    buffer_mib: int,
    beside: tuple[tuple[str, Path], ...],
) -> None:
    """Measure a worker's memory while it works a backlog off, its output is slow or refused, and it is killed."""
    console = Console()
    versions = {**dict(beside), "here": ROOT}
    load = backlog.Backlog(messages, partitions, value_bytes)
    with _broker(backlog.PROPERTIES) as (broker, folder):
        found = backlog.run(
            broker, folder, [load], output or backlog.OUTPUTS, seconds, versions, buffer_mib, console.print
        )
    backlog.show(found, console)
    backlog.save(found, BACKLOG_RESULTS)
    if not all(each.exact for each in found):
        sys.exit(EXIT_NOT_WELL)


@main.command("bridge")
@click.option("--messages", type=click.IntRange(min=_MESSAGES_MIN), default=1_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--rtt-ms",
    type=click.FloatRange(min=0),
    default=50.0,
    show_default=True,
    help="Of the slow link; 0: none.",
)
@click.option("--partitions", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--only", type=click.Choice(list(bridging.CONTENDERS)), multiple=True, help="May be repeated.")
def bridge_command(messages: int, rounds: int, rtt_ms: float, partitions: int, only: tuple[str, ...]) -> None:
    """Measure a bridge beside a worker's lanes and beside MirrorMaker 2, also over a slow link."""
    console = Console()
    chosen = [bridging.CONTENDERS[each] for each in only or bridging.CONTENDERS]
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        found = bridging.run(
            Path(name), Plan(messages, partitions), rounds, rtt_ms / 1000, chosen, console.print
        )
    bridging.show(found, console)
    bridging.save(found, BRIDGE_RESULTS)
    if found.failures or not all(found.exact(each) for each in chosen):
        sys.exit(EXIT_NOT_WELL)


@main.command("handover")
@click.option(
    "--rounds", type=click.IntRange(min=0), default=10, show_default=True, help="Members that come and go."
)
@click.option(
    "--slow-rounds", type=click.IntRange(min=0), default=5, show_default=True, help="With slow handlers."
)
@click.option("--kills", type=click.IntRange(min=0), default=3, show_default=True, help="Of each kind.")
@click.option("--pauses", type=click.IntRange(min=0), default=40, show_default=True, help="Of each length.")
@click.option(
    "--writes",
    type=click.IntRange(min=0),
    default=lease_load.WRITES,
    show_default=True,
    help="Of progress records.",
)
def handover_command(rounds: int, slow_rounds: int, kills: int, pauses: int, writes: int) -> None:
    """Measure how long a partition stands still when it changes hands, and what its lease costs."""
    console = Console()
    with _broker() as (broker, folder):
        repetitions = handover.Repetitions(rounds, slow_rounds, kills, pauses, writes)
        found = handover.run(broker, folder, repetitions, console.print)
    handover.show(found, console)
    handover.save(found, HANDOVER_RESULTS)


def _terminated(*_: object) -> None:
    """End as after an exception, so that every process that was started is ended too."""
    sys.exit(EXIT_TERMINATED)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    try:
        main()
    except (BenchError, KafkaException, RingfenceError) as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(EXIT_COULD_NOT_RUN)
