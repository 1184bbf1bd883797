"""Group-ordered consumption beside a plain consumer, a bare event loop, and the bound that groups and handlers set."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, repeat
from pathlib import Path
from statistics import median
from typing import Final

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from app.embedded.broker import EmbeddedBroker
from bench import shapes
from bench.clusters import RESULTS, temporary_broker
from bench.consumer_contender import TOTALS
from bench.errors import BenchError

PARTITIONS: Final = 4
MESSAGES: Final = 100_000
CELL_S: Final = 15.0
"""A cell that would take longer by its bound gets fewer messages."""
PLAIN_S: Final = 6.0
BACKLOG: Final = 50_000
LIVELY: Final = 20_000
LIMIT_S: Final = 300.0

HANDLERS_S: Final = (0.001, 0.01)
SENDS: Final = 300_000
SEND_KINDS: Final = ("nothing", "totals", "batches")
ACCEPTED_HEADERS: Final = (("_AMQ_DUPL_ID", b"order-1234567"), ("_RF_SOURCE", b"orders/0/1234567"))
"""As long as those of a worker's records."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One shape of traffic and one handler."""

    groups: str
    handler_s: float
    messages: int
    bound: float
    """Messages/s that no consumer with so many handlers can exceed in this order."""
    loop: float
    """Messages/s that an event loop gets which does nothing but await the handler, in the same order."""
    grouped: float
    """Messages/s."""
    grouped_cpu: float
    """CPU seconds a million messages."""
    plain: float
    plain_cpu: float


@dataclass(frozen=True, slots=True)
class Stuck:
    """The backlog of a group whose first message never ends stands before all the others in their partition."""

    backlog: int
    lively: int
    """Messages of 1,000 groups behind it."""
    handler_s: float
    alone: float
    """Seconds for these without it."""
    behind: float
    """And with it."""


def measure_stuck(broker: EmbeddedBroker) -> Stuck:
    """How long the lively ones take."""
    handler_s = HANDLERS_S[-1]
    walls = []
    for name, backlog in (("s0", 0), ("s1", BACKLOG)):
        _publish(broker.bootstrap_servers, f"{name}.accepted", "1,000", LIVELY, backlog)
        walls.append(_run("grouped", broker.bootstrap_servers, name, LIVELY, handler_s)["wall"])
    return Stuck(BACKLOG, LIVELY, handler_s, *walls)


@dataclass(frozen=True, slots=True)
class Sends:
    """A handler that sends one record and keeps a total for its group, beside one that does nothing."""

    kind: str
    rates: list[float]
    """Messages/s, by round."""
    cpu: list[float]
    """CPU seconds a million messages, by round."""


def measure_sends(broker: EmbeddedBroker, rounds: int, say: Callable[[str], None]) -> list[Sends]:
    """All kinds in each round, in turn."""
    _publish(broker.bootstrap_servers, "t0.accepted", "1,000", SENDS, headers=ACCEPTED_HEADERS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(TOTALS, PARTITIONS, 1)]).values():
        future.result(30)
    found = {kind: Sends(kind, [], []) for kind in SEND_KINDS}
    for number in range(rounds):
        for kind in SEND_KINDS if number % 2 == 0 else reversed(SEND_KINDS):
            result = _run(kind, broker.bootstrap_servers, "t0", SENDS, 0)
            found[kind].rates.append(SENDS / result["wall"])
            found[kind].cpu.append(result["cpu"] / SENDS * 1e6)
            say(
                f"{kind}: {SENDS / result['wall']:,.0f} messages/s, {found[kind].cpu[-1]:.1f} CPU s a million"
            )
    return list(found.values())


def measure(broker: EmbeddedBroker, say: Callable[[str], None]) -> list[Cell]:
    """All cells, one after the other."""
    cells: list[Cell] = []
    for shape in shapes.SHAPES:
        for handler_s in HANDLERS_S:
            limit = shapes.bound(shape, handler_s)
            messages = min(MESSAGES, int(limit * CELL_S))
            few = min(messages, int(PLAIN_S / handler_s))
            name = f"g{len(cells)}"
            _publish(broker.bootstrap_servers, f"{name}.accepted", shape, messages)
            loop = _run("loop", shape, messages, handler_s)
            grouped = _run("grouped", broker.bootstrap_servers, name, messages, handler_s)
            plain = _run("plain", broker.bootstrap_servers, name, few, handler_s)
            cell = Cell(
                shape, handler_s, messages, limit, messages / loop["wall"],
                messages / grouped["wall"], grouped["cpu"] / messages * 1e6,
                few / plain["wall"], plain["cpu"] / few * 1e6,
            )  # fmt: skip
            cells.append(cell)
            say(f"{shape} groups, {handler_s * 1000:.0f} ms: {cell.grouped:,.0f} of {limit:,.0f} messages/s")
    return cells


def _run(kind: str, *arguments: object) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.consumer_contender", kind, *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        raise BenchError(f"the {kind} consumer ended with {done.returncode}:\n{done.stderr[-2_000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _publish(
    bootstrap: str,
    topic: str,
    shape: str,
    messages: int,
    stuck: int = 0,
    headers: Sequence[tuple[str, bytes]] = (),
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 50})
    keys = (b"g%d" % group for group in shapes.groups(shape, messages))
    for key in chain(repeat(shapes.STUCK, stuck), keys):
        producer.produce(topic, b"x" * 100, key, headers=list(headers))
        producer.poll(0)
    if producer.flush(60):
        raise BenchError(f"not all messages reached {topic}")


def show(cells: Sequence[Cell], stuck: Stuck, console: Console) -> None:
    """Print a table for a person."""
    table = Table(title=f"messages/s, {shapes.CONCURRENCY} handlers at once, {PARTITIONS} partitions")
    for column in (
        "groups",
        "handler",
        "bound",
        "loop",
        "grouped",
        "of the bound",
        "of the loop",
        "CPU s/M",
        "plain",
        "CPU s/M",
    ):
        table.add_column(column, justify="right")
    for cell in cells:
        table.add_row(
            cell.groups, f"{cell.handler_s * 1000:.0f} ms", f"{cell.bound:,.0f}",
            f"{cell.loop:,.0f}", f"{cell.grouped:,.0f}", f"{cell.grouped / cell.bound:.0%}",
            f"{cell.grouped / cell.loop:.0%}", f"{cell.grouped_cpu:.0f}",
            f"{cell.plain:,.0f}", f"{cell.plain_cpu:.0f}",
        )  # fmt: skip
    console.print(table)
    console.print(
        f"{stuck.lively:,} messages of 1,000 groups: {stuck.alone:.1f} s; behind a stuck group's {stuck.backlog:,}: {stuck.behind:.1f} s"
    )


def show_sends(found: Sequence[Sends], console: Console) -> None:
    """Show medians, and the range."""
    table = Table(title=f"{SENDS:,} messages of 1,000 groups, {shapes.CONCURRENCY} handlers at once")
    for column in ("handler", "messages/s", "CPU s/M"):
        table.add_column(column, justify="right")
    for kind in found:
        cells = [
            f"{median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
            for values, digits in ((kind.rates, 0), (kind.cpu, 1))
        ]
        table.add_row(kind.kind, *cells)
    console.print(table)


def save(cells: Sequence[Cell], stuck: Stuck, path: Path) -> None:
    """Write everything."""
    document = {"cells": [asdict(cell) for cell in cells], "stuck": asdict(stuck)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


@click.command("consume")
@click.option("--sends", is_flag=True, help="Only handlers that send and keep state.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Of --sends.")
def command(*, sends: bool, rounds: int) -> None:
    """Measure group-ordered consumption beside a plain consumer and the bound of groups and handlers."""
    console = Console()
    with temporary_broker() as (broker, _):
        if sends:
            show_sends(measure_sends(broker, rounds, console.print), console)
            return
        cells = measure(broker, console.print)
        stuck = measure_stuck(broker)
    show(cells, stuck, console)
    save(cells, stuck, RESULTS / "consume.json")
