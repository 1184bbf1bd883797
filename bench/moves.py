"""How long lanes are silent while workers come and go: those that stay with their worker, and those that move.

Versions of the project take turns on one broker, so that what disturbs the machine disturbs all of them.
"""

import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from app.embedded.broker import EmbeddedBroker
from bench import topics, worker_log
from bench.job import spread
from bench.stage import DIES, JOINS, LEAVES, NOTHING, PARTITIONS, RETURNS, Happened, Stage
from bench.table import machine
from bench.takeover import longest_silence

HERE: Final = "here"
"""The version that this file belongs to."""
STAYS_GOAL_S: Final = 0.2
MOVES_GOAL_S: Final = 1.5
HELD_GOAL_S: Final = 0.05

BROKER: Final = {"log.cleaner.enable": "false"}
"""Compaction of what filled the rings begins some seconds later, and lanes are silent for 0.4 s again and again while nothing happens."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Move:
    """A worker came or went while another one had lanes."""

    version: str
    ids: int
    """In each lane's ring."""
    what: str
    stays_s: float
    """The longest silence of a lane that stayed where it was."""
    moves_s: float | None
    """The same of one that moved; None = none did."""
    stands_s: float | None
    """From the beginning until lanes stood still for it, ..."""
    assigned_s: float | None
    """... until the group had given all of them, ..."""
    open_s: float
    """... and until all were open."""
    held_s: float
    """The longest time that an event loop of a worker ran one callback, waiting for a core included."""
    held_cpu_s: float
    """The most CPU that one callback took."""
    cpu_s: float
    """Of all workers that were there to the end, in the whole time that was watched."""
    watched_s: float
    load_average: float
    """Of the machine, over the minute before."""


def judge(happened: Happened, version: str, ids: int) -> Move:
    """The figures of it."""
    began, events = happened.began, sorted(happened.events)
    moved = frozenset(range(PARTITIONS)) - happened.stayed
    stood = worker_log.first(events, worker_log.REBALANCE, began)
    assigned = worker_log.last(events, worker_log.ASSIGNED, began)
    return Move(
        version, ids, happened.what,
        stays_s=longest_silence(happened.seen, happened.stayed, began),
        moves_s=longest_silence(happened.seen, moved, began) if moved else None,
        stands_s=None if stood is None else stood - began,
        assigned_s=None if assigned is None else assigned - began,
        open_s=happened.opened - began,
        held_s=happened.held[0],
        held_cpu_s=happened.held[1],
        cpu_s=happened.cpu_s,
        watched_s=happened.ended - began,
        load_average=os.getloadavg()[0],
    )  # fmt: skip


def run(
    broker: EmbeddedBroker,
    folder: Path,
    versions: Mapping[str, Path],
    sizes: Sequence[int],
    rounds: int,
    rate: int,
    say: Say,
) -> list[Move]:
    """Everything that happens, with each version and each size of rings, in turn.

    Raises:
        BenchError: a worker failed, or lanes did not come back.
    """
    found: list[Move] = []
    numbers = itertools.count(1)
    for ids, number in itertools.product(sizes, range(rounds)):
        names = list(versions)
        for version in names[number % len(names) :] + names[: number % len(names)]:
            name = f"bench-moves-{next(numbers)}"
            say(f"{version}: {PARTITIONS} lanes of {ids:,} IDs, {rate:,} messages/s")
            with Stage(broker, folder, versions[version], name, ids) as stage:
                stage.fill()
                for happened in stage.run(rate):
                    found.append(judge(happened, version, ids))
                    say(f"  {line(found[-1])}")
            topics.delete(broker.bootstrap_servers, [name, *stage.made])
    return found


def line(each: Move) -> str:
    """One measurement in words."""
    moves = "" if each.moves_s is None else f", moves {each.moves_s:.2f} s"
    return (
        f"{each.what}: stays {each.stays_s:.2f} s{moves}; stand after {_seconds(each.stands_s)}, "
        f"assigned {_seconds(each.assigned_s)}, all open {each.open_s:.2f} s; "
        f"a loop held {each.held_s * 1000:.0f} ms ({each.held_cpu_s * 1000:.0f} of CPU); {each.cpu_s:.1f} CPU s in {each.watched_s:.1f} s"
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def show(found: Sequence[Move], console: Console) -> None:
    """A line for each version, size and thing that happens: median, smallest and largest."""
    table = Table(
        "IDs a lane", "", "version", "stays, s", "moves, s", "loop held, ms", "of CPU, ms", "CPU s", "of s"
    )
    kinds = dict.fromkeys((each.ids, each.what, each.version) for each in found)
    order = [NOTHING, JOINS, LEAVES, RETURNS, DIES]
    for ids, what, version in sorted(kinds, key=lambda each: (each[0], order.index(each[1]), each[2])):
        kind = [each for each in found if (each.ids, each.what, each.version) == (ids, what, version)]
        moves = [each.moves_s for each in kind if each.moves_s is not None]
        table.add_row(
            f"{ids:,}", what, version,
            _range([each.stays_s for each in kind], 2),
            _range(moves, 2) if moves else "",
            _range([each.held_s * 1000 for each in kind], 0),
            _range([each.held_cpu_s * 1000 for each in kind], 0),
            _range([each.cpu_s for each in kind], 1),
            _range([each.watched_s for each in kind], 1),
        )  # fmt: skip
    console.print(table)
    console.print(
        f"Goals: stays {STAYS_GOAL_S} s, moves in order {MOVES_GOAL_S} s, a loop held {HELD_GOAL_S * 1000:.0f} ms at most."
    )


def _range(values: Sequence[float], digits: int) -> str:
    low, median, high = spread(values)
    if len(values) == 1:
        return f"{median:,.{digits}f}"
    return f"{median:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def save(found: Sequence[Move], path: Path) -> None:
    """Write everything measured, and where."""
    document: dict[str, Any] = {**machine(), "moves": [asdict(each) for each in found]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
