"""One large ring: how it comes back, what it takes of memory and disk, and what messages cost with it."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from app.embedded.broker import EmbeddedBroker
from bench import measure, topics
from bench.clusters import RESULTS, temporary_broker
from bench.contenders import ringfence
from bench.errors import EXIT_NOT_WELL, BenchError
from bench.job import Job, perform
from bench.measure import REPORT, ROOT
from bench.table import machine
from bench.traffic import FLUSH_LIMIT_S, LOG_LEVEL, Plan, generate, publish
from ringfence_kafka.protocol import stored_ids, wire_names
from tables import codec
from tables.codec import Meta, Origin

APP_ID: Final = "bench-rings"
RESIDENT, STORED, PYTHON = "resident", "stored", "resident, in Python"
KINDS: Final = (RESIDENT, STORED, PYTHON)
BATCH: Final = 5_000
"""IDs of one transaction."""
LIMIT_S: Final = 900.0
RATE_GOAL: Final = 500_000
HELD_GOAL_S: Final = 0.1
RSS_GOAL_BYTES: Final = 2**30
_ENOUGH: Final = "1000000000"
_ENVIRONMENT: Final = {
    RESIDENT: {"RINGFENCE_APP__RESIDENT_IDS_MAX": _ENOUGH},
    STORED: {"RINGFENCE_APP__RESIDENT_IDS_MAX": "0"},
    PYTHON: {"RINGFENCE_APP__RESIDENT_IDS_MAX": _ENOUGH, "RINGFENCE_NATIVE": "off"},
}

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Opened:
    """The table of a lane with a full ring was opened in a process of its own."""

    kind: str
    reused: bool
    """RocksDB was there and up to date; else the whole changelog was read."""
    ids: int
    seconds: float
    cpu_s: float
    held_s: float
    """The longest that another task of the event loop had to wait beyond its time."""
    rss_bytes: int
    """Memory of the whole process once it was open, and ..."""
    peak_rss_bytes: int
    began_rss_bytes: int
    """... before it was."""
    disk_bytes: int
    """Disk space of the lane's RocksDB."""
    misses_us: float
    """CPU microseconds to look an unknown ID up, in batches of 1,000; and ..."""
    hits_us: float
    """... one that is known."""
    misses_read_bytes: int
    """Bytes that the process read for 100,000 of the former, by the kernel's count of read calls."""
    changelog_bytes: int = 0

    @property
    def rate(self) -> float:
        """IDs a second."""
        return self.ids / self.seconds


@dataclass(frozen=True, slots=True)
class Worked:
    """A worker with such a ring did a backlog."""

    kind: str
    messages: int
    rate: float
    cpu_s_per_million: float
    broker_cpu_s_per_million: float
    peak_rss_bytes: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Found:
    """All that was measured."""

    ids: int
    opened: list[Opened]
    worked: list[Worked]


def run(
    broker: EmbeddedBroker, folder: Path, ids: int, messages: int, kinds: Sequence[str], rounds: int, say: Say
) -> Found:
    """Write a changelog with so many IDs, open it with an empty disk and with a full one, then have a worker go on with it.

    Raises:
        BenchError: the ring did not come back whole, or a worker failed.
    """
    opened: list[Opened] = []
    worked: list[Worked] = []
    for kind in kinds:
        address = f"rings-{KINDS.index(kind)}"
        worker = ringfence.prepare(
            folder / address, broker.bootstrap_servers, APP_ID, address, ids, partitions=1
        )
        changelog = wire_names.changelog_topic(APP_ID, address)
        fill(broker.bootstrap_servers, changelog, address, ids)
        logged = sum(path.stat().st_size for path in folder.rglob(f"{changelog}-0/*.log"))
        say(f"{kind}: a changelog of {ids:,} IDs, {logged / ids:.1f} bytes each")
        for number in range(rounds):
            state = folder / address / f"state-{number}"
            for reused in (False, True):
                each = _probe(folder / address / "ringfence.toml", state, kind, logged)
                if (each.ids, each.reused) != (ids, reused):
                    raise BenchError(f"expected {ids} IDs, RocksDB {'reused' if reused else 'new'}: {each}")
                opened.append(each)
                say(f"  {line(each)}")
        if messages:
            job = Job(
                kind, worker.command, APP_ID, address, worker.output, 1, messages,
                environ=tuple(_ENVIRONMENT[kind].items()),
            )  # fmt: skip
            worked.append(_work(broker, folder, job, ids, address))
            say(f"  {worked[-1]}")
        topics.delete(broker.bootstrap_servers, [address, worker.output, *worker.more_topics])
    return Found(ids, opened, worked)


def identity(number: int) -> bytes:
    """Return the ID of a sequence: 36 characters, as a UUID has."""
    text = f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}{number:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}".encode()


def fill(bootstrap: str, changelog: str, address: str, ids: int) -> None:
    """Write ring and meta records as a lane does, each transaction's in one batch or few.

    Raises:
        BenchError: the broker did not confirm all.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap, "transactional.id": f"fill-{changelog}", "linger.ms": 50, "batch.size": 2**20,
            "queue.buffering.max.messages": 100_000, "log_level": LOG_LEVEL,
        }
    )  # fmt: skip
    producer.init_transactions(FLUSH_LIMIT_S)
    numbers = iter(range(ids))
    while some := list(islice(numbers, BATCH * 10)):
        producer.begin_transaction()
        for number in some:
            value = codec.ring_value(
                number, stored_ids.encode_id(identity(number)), Origin(0, number, 1_700_000_000_000)
            )
            producer.produce(changelog, value, codec.ring_key(ids, number), 0)
            if number % BATCH == BATCH - 1 or number == ids - 1:
                meta = Meta(ids, number + 1, 0, {}, {}, "filled", app=APP_ID, address=address)
                producer.produce(changelog, codec.encode_meta(meta), codec.META_KEY, 0)
                producer.poll(0)
        producer.commit_transaction(FLUSH_LIMIT_S)


def _probe(config: Path, state: Path, kind: str, logged: int) -> Opened:
    done = subprocess.run(
        [sys.executable, "-m", "bench.rings_probe", str(config), str(state)],
        cwd=ROOT,
        env=measure.environment() | _ENVIRONMENT[kind],
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith(REPORT):
            return Opened(kind=kind, changelog_bytes=logged, **json.loads(line.removeprefix(REPORT)))
    raise BenchError(
        f"opening the lane ended with {done.returncode}:\n{done.stderr.decode(errors='replace')[-2000:]}"
    )


def _work(broker: EmbeddedBroker, folder: Path, job: Job, ids: int, address: str) -> Worked:
    plan = Plan(job.messages, partitions=1, ring=min(ids, 20_000))
    expected = publish(broker.bootstrap_servers, address, generate(plan))
    done = perform(job, broker.bootstrap_servers, [broker.pid], folder / f"{address}.log")
    exact = done.outputs == done.distinct_outputs == expected.distinct
    per_million = 1e6 / done.measured
    return Worked(
        job.contender, done.measured, done.rate, done.cpu_s * per_million, done.broker_cpu_s * per_million,
        done.peak_rss_bytes, exact,
    )  # fmt: skip


def line(each: Opened) -> str:
    """One opening in words."""
    return (
        f"RocksDB {'up to date' if each.reused else 'new'}: {each.seconds:.2f} s, {each.cpu_s:.2f} CPU s, {each.rate:,.0f} IDs/s; "
        f"loop held {each.held_s * 1000:.0f} ms; {each.rss_bytes / 2**20:,.0f} MiB (peak {each.peak_rss_bytes / 2**20:,.0f}), "
        f"{(each.rss_bytes - each.began_rss_bytes) / each.ids:.1f} bytes an ID, {each.disk_bytes / each.ids:.1f} on disk; "
        f"a miss {each.misses_us:.2f} µs, a hit {each.hits_us:.2f} µs; misses read {each.misses_read_bytes:,} bytes"
    )


def show(found: Found, console: Console) -> None:
    """Print both tables."""
    table = Table(
        f"a ring of {found.ids:,} IDs", "opened from", "s", "CPU s", "IDs/s", "loop held, ms", "MiB", "peak",
        "bytes an ID", "on disk", "a miss, µs", "a hit, µs", "read for 100,000 misses",
    )  # fmt: skip
    for opened in found.opened:
        table.add_row(
            opened.kind, "RocksDB" if opened.reused else "changelog", f"{opened.seconds:.2f}", f"{opened.cpu_s:.2f}",
            f"{opened.rate:,.0f}", f"{opened.held_s * 1000:.0f}", f"{opened.rss_bytes / 2**20:,.0f}",
            f"{opened.peak_rss_bytes / 2**20:,.0f}", f"{(opened.rss_bytes - opened.began_rss_bytes) / opened.ids:.1f}",
            f"{opened.disk_bytes / opened.ids:.1f}", f"{opened.misses_us:.2f}", f"{opened.hits_us:.2f}",
            f"{opened.misses_read_bytes:,}",
        )  # fmt: skip
    console.print(table)
    if found.worked:
        table = Table(
            "a worker with it", "messages/s", "CPU s / million", "the broker's", "peak MiB", "exact"
        )
        for work in found.worked:
            table.add_row(
                work.kind, f"{work.rate:,.0f}", f"{work.cpu_s_per_million:.2f}",
                f"{work.broker_cpu_s_per_million:.2f}", f"{work.peak_rss_bytes / 2**20:,.0f}",
                "yes" if work.exact else "NO",
            )  # fmt: skip
        console.print(table)
    console.print(
        f"Goals: {RATE_GOAL:,} IDs/s from the changelog, a loop held {HELD_GOAL_S * 1000:.0f} ms, "
        f"{RSS_GOAL_BYTES / 2**20:,.0f} MiB at most."
    )


def save(found: Found, path: Path) -> None:
    """Write everything measured, and where."""
    document: dict[str, Any] = {**machine(), **asdict(found)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


@click.command("rings")
@click.option("--ids", type=click.IntRange(min=1_000), default=10_000_000, show_default=True)
@click.option(
    "--messages",
    type=click.IntRange(min=0),
    default=1_000_000,
    show_default=True,
    help="That a worker does with the full ring; 0: none.",
)
@click.option(
    "--only", type=click.Choice(KINDS), multiple=True, help="May be repeated; without it the first two."
)
@click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True)
def command(ids: int, messages: int, only: tuple[str, ...], rounds: int) -> None:
    """Measure one large ring: how it comes back, its memory and disk, look-ups, and a worker's cost with it."""
    console = Console()
    with temporary_broker() as (broker, folder):
        found = run(broker, folder, ids, messages, only or KINDS[:2], rounds, console.print)
    show(found, console)
    save(found, RESULTS / "rings.json")
    if not all(worked.exact for worked in found.worked):
        sys.exit(EXIT_NOT_WELL)
