"""Measure how long a partition is paused when it changes hands, and the cost of its lease."""

import contextlib
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from app.embedded.broker import EmbeddedBroker
from bench import consumers, lease_load, topics
from bench.clusters import RESULTS, temporary_broker
from bench.consumers import PARTITIONS, Member, Steady, until, until_shared
from bench.lease_load import Load
from bench.table import machine
from ringfence_client import ConsumerOptions

DEFAULTS: Final = ConsumerOptions()
QUICK_RATE: Final = 200.0
QUICK_HANDLER_S: Final = 0.001
SLOW_RATE: Final = 4.0
SLOW_HANDLER_S: Final = 2.0
BUSY_RATE: Final = 40.0
BUSY_HANDLER_S: Final = 0.2
SETTLE_S: Final = 1.5
COVERED_PAUSE_S: Final = 0.3
IDLE_PAUSE_S: Final = 1.5
"""Beyond half of ``lease_idle``: the next message waits for a refresh."""

CLEAN, SLOW, KILLED_BUSY, KILLED_IDLE = "clean", "slow handler", "killed, busy", "killed, idle"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Repetitions:
    """Number of repetitions of each measurement."""

    rounds: int
    """Members that join and leave: two partitions go there and back each time."""
    slow_rounds: int
    kills: int
    pauses: int
    writes: int
    """For the progress topic's load."""


@dataclass(frozen=True, slots=True)
class Handover:
    """A partition went from one member to another. Seconds."""

    kind: str
    joined: bool
    """To a member that had just joined; else back, from one that left or died."""
    assigned_s: float
    """From the assignment of the new holder to its first message of the partition."""
    still_s: float
    """From the last message that began under the old holder to the first under the new one."""
    beyond_s: float
    """From the end of the old holder's last handler; killed: beyond the session and lease time-outs after the kill."""


@dataclass(frozen=True, slots=True)
class Found:
    """All measurements."""

    repetitions: Repetitions
    handovers: list[Handover]
    kept_still_s: list[float]
    """Clean: the longest silence of each partition that stayed where it was, in each change of members."""
    covered_s: list[float]
    """From a message's making to its handler, where the lease was fresh."""
    refreshed_s: list[float]
    """The same after a pause, where it was written again first."""
    load: Load | None
    load_average: tuple[float, ...]


def run(broker: EmbeddedBroker, folder: Path, repetitions: Repetitions, say: Say) -> Found:
    """Measure all of it.

    Raises:
        BenchError: partitions did not come back.
    """
    scene = _Scene(broker.bootstrap_servers, folder, say)
    handovers, kept = scene.changes(CLEAN, repetitions.rounds, QUICK_RATE, QUICK_HANDLER_S)
    slow, _ = scene.changes(SLOW, repetitions.slow_rounds, SLOW_RATE, SLOW_HANDLER_S)
    handovers += slow
    for busy in (True, False):
        handovers += scene.kills(repetitions.kills, busy=busy)
    covered, refreshed = scene.pauses(repetitions.pauses)
    load = None
    if repetitions.writes:
        say(f"writing {repetitions.writes:,} progress records")
        load = lease_load.run(broker.bootstrap_servers, broker.directory / "data", repetitions.writes, say)
    return Found(repetitions, handovers, kept, covered, refreshed, load, os.getloadavg())


class _Scene:
    """Addresses one after the other, each with members of its own."""

    def __init__(self, bootstrap: str, folder: Path, say: Say) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._say = say
        self._numbers = itertools.count(1)

    def _address(self) -> tuple[str, Path]:
        address = f"bench-handover-{next(self._numbers)}"
        topics.create(self._bootstrap, f"{address}.accepted", PARTITIONS)
        return address, consumers.configure(self._folder / address, self._bootstrap, address)

    def changes(
        self, kind: str, rounds: int, rate: float, handler_s: float
    ) -> tuple[list[Handover], list[float]]:
        """Another member joins and leaves again, so many times."""
        found: list[Handover] = []
        kept: list[float] = []
        if not rounds:
            return found, kept
        address, config = self._address()
        with contextlib.ExitStack() as resources:
            first = Member(0, config, address, handler_s, resources)
            resources.enter_context(Steady(self._bootstrap, f"{address}.accepted", rate))
            until_shared(first)
            for number in range(1, rounds + 1):
                time.sleep(SETTLE_S)
                began = time.time()
                guest = Member(number, config, address, handler_s, resources)
                until_shared(first, guest)
                joined = time.time()
                found += _handed(kind, first, guest, began, joined=True)
                kept += _kept(first, guest, began)
                guest.child.stop()
                until_shared(first)
                found += _handed(kind, guest, first, joined, joined=False)
                self._say(f"  {kind}, round {number}: {_still(found[-PARTITIONS:])}")
        return found, kept

    def kills(self, times: int, *, busy: bool) -> list[Handover]:
        """One of two members is killed: while handlers run, or while nothing has come for a while."""
        kind = KILLED_BUSY if busy else KILLED_IDLE
        address, config = self._address()
        topic, rate, handler_s = f"{address}.accepted", BUSY_RATE, BUSY_HANDLER_S if busy else QUICK_HANDLER_S
        limit_s = DEFAULTS.session_timeout + (DEFAULTS.lease_timeout if busy else DEFAULTS.lease_idle)
        found: list[Handover] = []
        with contextlib.ExitStack() as resources:
            survivor = Member(0, config, address, handler_s, resources)
            for number in range(1, times + 1):
                victim = Member(number, config, address, handler_s, resources)
                with contextlib.ExitStack() as flowing:
                    flowing.enter_context(Steady(self._bootstrap, topic, rate))
                    until_shared(survivor, victim)
                    if not busy:
                        flowing.close()
                    time.sleep(SETTLE_S)  # until the lease says what runs, or that nothing does
                    killed = time.time()
                    victim.child.kill()
                    if not busy:
                        flowing.enter_context(Steady(self._bootstrap, topic, rate))
                    until_shared(survivor)
                handed = _handed(kind, victim, survivor, killed, joined=False, due=killed + limit_s)
                self._say(f"  {kind}, {number}: {_still(handed)}")
                found += handed
        return found

    def pauses(self, times: int) -> tuple[list[float], list[float]]:
        """Return a message after a short pause and one after a long one, by turns."""
        address, config = self._address()
        seconds: dict[float, list[float]] = {COVERED_PAUSE_S: [], IDLE_PAUSE_S: []}
        with contextlib.ExitStack() as resources:
            member = Member(0, config, address, 0, resources)
            traffic = Steady(self._bootstrap, f"{address}.accepted", 1)
            traffic.send(0)
            until(member.ran, "a first message", [member])
            for turn in range(2 * times):
                pause_s = (COVERED_PAUSE_S, IDLE_PAUSE_S)[turn % 2]
                time.sleep(pause_s)
                traffic.send(0)
                until(lambda turn=turn: len(member.ran()) == turn + 2, "a message", [member])  # type: ignore[misc]
                run = member.ran()[-1]
                seconds[pause_s].append(run.began - run.produced)
        self._say(f"  {times} messages after a short and a long pause")
        return seconds[COVERED_PAUSE_S], seconds[IDLE_PAUSE_S]


def _handed(
    kind: str, old: Member, new: Member, since: float, *, joined: bool, due: float | None = None
) -> list[Handover]:
    """Return the pause of each partition that the joining or leaving member has had.

    Args:
        kind: Kind of the handover.
        old: Member that had the partitions.
        new: Member that has them now.
        since: The new one had none of them before.
        joined: Whether the new one is the member that came.
        due: Killed: when session and lease have run out.
    """
    before, after = old.ran(), new.ran()
    found = []
    for partition in sorted({item.partition for item in (after if joined else before)}):
        first = min(item.began for item in after if item.partition == partition and item.began > since)
        runs = [item for item in before if item.partition == partition and item.began < first]
        ended = max(run.ended or run.began for run in runs)
        found.append(
            Handover(
                kind,
                joined,
                first - new.assigned(first),
                first - max(run.began for run in runs),
                first - (ended if due is None else due),
            )
        )
    return found


def _kept(member: Member, guest: Member, since: float) -> list[float]:
    """Return the longest silence of each partition that stayed."""
    moved = {item.partition for item in guest.ran()}
    found = []
    for partition in set(range(PARTITIONS)) - moved:
        moments = [item.began for item in member.ran() if item.partition == partition and item.began > since]
        found.append(max(later - earlier for earlier, later in itertools.pairwise(moments)))
    return found


def _still(handovers: Sequence[Handover]) -> str:
    return ", ".join(f"{handover.still_s:.2f}" for handover in handovers) + " s still"


def _quantiles(values: Sequence[float]) -> str:
    """Median, and the 99th of a hundred, which of few is the largest."""
    ordered = sorted(values)
    return f"{ordered[(len(ordered) - 1) // 2]:.3f} / {ordered[math.ceil(0.99 * len(ordered)) - 1]:.3f}"


def show(found: Found, console: Console) -> None:
    """Print the tables."""
    table = Table("p50 / p99, seconds", "times", "assigned to first message", "stood still", "beyond")
    kinds = dict.fromkeys((handover.kind, handover.joined) for handover in found.handovers)
    for kind, joined in kinds:
        those = [
            handover for handover in found.handovers if (handover.kind, handover.joined) == (kind, joined)
        ]
        table.add_row(
            f"{kind}{', to who joined' if joined else ''}", str(len(those)),
            *(_quantiles([getattr(handover, name) for handover in those]) for name in ("assigned_s", "still_s", "beyond_s")),
        )  # fmt: skip
    if found.kept_still_s:
        table.add_row("clean, stays", str(len(found.kept_still_s)), "", _quantiles(found.kept_still_s), "")
    console.print(table)
    console.print(
        "beyond: after the end of the former holder's last handler; killed: after the session and lease time-outs."
    )
    for name, values in (("fresh", found.covered_s), ("written again first", found.refreshed_s)):
        if values:
            console.print(
                f"a message to its handler, lease {name}: {_quantiles(values)} s, {len(values)} times"
            )
    if found.load is not None:
        for name, openings in (
            ("without compaction", found.load.without),
            ("after the cleaner", found.load.cleaned),
        ):
            each = sorted(openings, key=lambda each: each.seconds)[len(openings) // 2]
            console.print(
                f"an opening {name}: {each.records:,} records, {each.bytes:,} bytes, {each.seconds:.2f} s"
            )


def save(found: Found, path: Path) -> None:
    """Everything measured, and where."""
    document: dict[str, Any] = {**machine(), **asdict(found)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


@click.command("handover")
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
def command(rounds: int, slow_rounds: int, kills: int, pauses: int, writes: int) -> None:
    """Measure how long a partition is paused when it changes hands, and the cost of its lease."""
    console = Console()
    with temporary_broker() as (broker, folder):
        repetitions = Repetitions(rounds, slow_rounds, kills, pauses, writes)
        found = run(broker, folder, repetitions, console.print)
    show(found, console)
    save(found, RESULTS / "handover.json")
