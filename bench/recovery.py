"""Recovery: how long an ended worker's lanes are missed, and how fast a ring comes back."""

import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from app.embedded.broker import EmbeddedBroker
from bench import restore, takeover
from bench.clusters import RESULTS, temporary_broker
from bench.job import spread
from bench.restore import Restoration
from bench.table import machine
from bench.takeover import Takeover
from bench.traffic import MESSAGES_MIN
from ringfence_kafka.config.settings import AppSettings

SESSION_TIMEOUT_S: Final = float(AppSettings().session_timeout)
BEYOND_GOAL_S: Final = 2.0
"""Beyond the session time-out, for a killed worker's lanes."""
RATE_GOAL: Final = 300_000
"""Changelog records a second with an empty disk."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Repetitions:
    """Number of repetitions of each measurement."""

    kills: int
    stops: int
    restores: int
    ids: int
    """In the ring that is restored."""
    seed: int


@dataclass(frozen=True, slots=True)
class Found:
    """All measurements."""

    repetitions: Repetitions
    takeovers: list[Takeover]
    restorations: list[Restoration]
    load_average: tuple[float, ...]
    """Load averages of the machine over the last 1, 5 and 15 minutes, at the end."""


def run(broker: EmbeddedBroker, folder: Path, repetitions: Repetitions, say: Say) -> Found:
    """Measure both.

    Raises:
        BenchError: a worker failed, or lanes did not come back.
    """
    bootstrap = broker.bootstrap_servers
    signals = [signal.SIGKILL] * repetitions.kills + [signal.SIGTERM] * repetitions.stops
    takeovers: list[Takeover] = []
    restorations: list[Restoration] = []
    if signals:
        say(f"ending one of two workers {len(signals)} times")
        takeovers = takeover.run(bootstrap, folder / "takeover", signals, say, repetitions.seed)
    if repetitions.restores:
        say(f"restoring a ring of {repetitions.ids:,} IDs {repetitions.restores} times of each kind")
        restorations = restore.run(
            bootstrap, broker.pid, folder / "restore", repetitions.ids, repetitions.restores, say
        )
    return Found(repetitions, takeovers, restorations, os.getloadavg())


def beyond_s(each: Takeover) -> float:
    """Seconds beyond the session time-out until all lanes of a killed worker delivered again."""
    return each.all_s - SESSION_TIMEOUT_S


def show(found: Found, console: Console) -> None:
    """Print both tables: median, smallest and largest."""
    kinds = {
        name: [takeover for takeover in found.takeovers if takeover.signal == name]
        for name in ("SIGKILL", "SIGTERM")
    }
    kinds = {name: kind for name, kind in kinds.items() if kind}
    if kinds:
        table = Table(
            "seconds from the signal", *(f"{name}, {len(kind)} times" for name, kind in kinds.items())
        )
        for label, figure, digits in _TAKEOVER_ROWS:
            table.add_row(
                label, *(_range([figure(takeover) for takeover in kind], digits) for kind in kinds.values())
            )
        console.print(table)
    if killed := kinds.get("SIGKILL"):
        worst = max(map(beyond_s, killed))
        console.print(
            f"Beyond the session time-out of {SESSION_TIMEOUT_S:.0f} s: {_range(list(map(beyond_s, killed)), 2)} s; "
            f"goal: under {BEYOND_GOAL_S:.0f} s, {'met' if worst < BEYOND_GOAL_S else 'MISSED'}."
        )
    if found.restorations:
        _show_restorations(found.restorations, console)
    console.print(f"Load average at the end: {', '.join(f'{value:.1f}' for value in found.load_average)}.")


def _show_restorations(restorations: Sequence[Restoration], console: Console) -> None:
    kinds = {
        name: [restoration for restoration in restorations if restoration.reused is reused]
        for name, reused in (("empty disk", False), ("RocksDB up to date", True))
    }
    table = Table("ring restored", *(f"{name}, {len(kind)} times" for name, kind in kinds.items()))
    for label, figure, digits in _RESTORE_ROWS:
        table.add_row(
            label, *(_range([figure(restoration) for restoration in kind], digits) for kind in kinds.values())
        )
    console.print(table)
    median = spread([kind.rate for kind in kinds["empty disk"]])[1]
    console.print(
        f"Goal with an empty disk: {RATE_GOAL:,}/s, median {'met' if median >= RATE_GOAL else 'MISSED'}."
    )


_TAKEOVER_ROWS: Final[tuple[tuple[str, Callable[[Takeover], float], int], ...]] = (
    ("the survivor hears of it", lambda each: each.noticed_s, 2),
    ("all lanes are assigned to it", lambda each: each.assigned_s, 2),
    ("the new lanes are open", lambda each: each.opened_s, 2),
    ("... longest restore of one", lambda each: each.restore_s, 2),
    ("... changelog records", lambda each: each.restored_records, 0),
    ("a message of one is read", lambda each: each.first_s, 2),
    ("messages of all are read", lambda each: each.all_s, 2),
    ("silence of its old lanes", lambda each: each.own_standstill_s, 2),
)
_RESTORE_ROWS: Final[tuple[tuple[str, Callable[[Restoration], float], int], ...]] = (
    ("IDs", lambda each: each.ids, 0),
    ("changelog records read", lambda each: each.changelog_records, 0),
    ("seconds", lambda each: each.seconds, 2),
    ("CPU seconds", lambda each: each.cpu_s, 2),
    ("IDs/s", lambda each: each.rate, 0),
    ("seconds, opened again", lambda each: each.again_s, 2),
)


def _range(values: Sequence[float], digits: int) -> str:
    low, median, high = spread(values)
    if low == high:
        return f"{median:,.{digits}f}"
    return f"{median:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def document(found: Found) -> dict[str, Any]:
    """Everything measured, and where."""
    return {
        **machine(),
        "load_average": found.load_average,
        "repetitions": asdict(found.repetitions),
        "session_timeout_s": SESSION_TIMEOUT_S,
        "takeovers": [asdict(takeover) for takeover in found.takeovers],
        "restorations": [
            {**asdict(restoration), "ids_per_s": restoration.rate} for restoration in found.restorations
        ],
    }


def save(found: Found, path: Path) -> None:
    """Write the document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(found), indent=2) + "\n", "utf-8")


@click.command("recovery")
@click.option(
    "--kills", type=click.IntRange(min=0), default=5, show_default=True, help="Workers ended by SIGKILL."
)
@click.option(
    "--stops", type=click.IntRange(min=0), default=5, show_default=True, help="Workers ended by SIGTERM."
)
@click.option("--restores", type=click.IntRange(min=0), default=3, show_default=True, help="Of each kind.")
@click.option(
    "--ids",
    type=click.IntRange(min=MESSAGES_MIN),
    default=1_000_000,
    show_default=True,
    help="In the restored ring.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of traffic and moments.")
def command(kills: int, stops: int, restores: int, ids: int, seed: int) -> None:
    """Measure how long the lanes of an ended worker are missed, and how fast a ring comes back."""
    console = Console()
    with temporary_broker() as (broker, folder):
        found = run(broker, folder, Repetitions(kills, stops, restores, ids, seed), console.print)
    show(found, console)
    save(found, RESULTS / "recovery.json")
