"""What copies cost: the same worker and the same traffic on one broker, and on three of which each has all topics."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from app.embedded.broker import EmbeddedBroker
from app.embedded.several import several
from bench import latency
from bench.latency import Found, Load, Version
from bench.measure import ROOT, Cluster
from bench.traffic import Plan

ONE: Final = "one broker, one copy"
THREE: Final = "three brokers, three copies"
LINGER_MS: Final = 10
"""With 1, as elsewhere, librdkafka has as much under way as it may where copies are waited for, and its threads then turn in circles: they
took as much of the two cores as two brokers."""
RESULTS: Final = Path(__file__).parent / "results" / "replicas.json"


@click.command("replicas")
@click.option("--rate", type=click.IntRange(min=0), default=5_000, show_default=True, help="0: backlog only.")
@click.option("--seconds", type=click.FloatRange(min=1), default=30.0, show_default=True)
@click.option("--backlog", type=click.IntRange(min=0), default=1_000_000, show_default=True, help="0: none.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
def command(rate: int, seconds: float, backlog: int, rounds: int) -> None:
    """Measure what copies cost the brokers, and how much longer messages wait for them."""
    console = Console()
    load = Load(rate, seconds, backlog, Plan(backlog, 4), linger_ms=LINGER_MS)
    found = Found(load)
    for number in range(rounds):
        for name in (ONE, THREE) if number % 2 == 0 else (THREE, ONE):
            with (
                tempfile.TemporaryDirectory(prefix="ringfence-bench-") as folder,
                _cluster(name, Path(folder) / "brokers") as cluster,
            ):
                done = latency.run(cluster, Path(folder), load, {name: Version(ROOT)}, 1, console.print)
            if rate:
                found.steady.setdefault(name, []).extend(done.steady[name])
            if backlog:
                found.backlog.setdefault(name, []).extend(done.backlog[name])
    latency.show(found, console)
    latency.save(found, RESULTS)


@contextlib.contextmanager
def _cluster(name: str, folder: Path) -> Iterator[Cluster]:
    """One of the two; three must have what is acknowledged on two of them."""
    if name == ONE:
        with EmbeddedBroker(folder) as broker:
            yield broker
    else:
        with several(folder) as cluster:
            yield cluster
