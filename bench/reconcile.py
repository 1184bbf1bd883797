"""Measure the records a second that the reconciliation job judges, and its resources: 1, 3 and 10 million records.

The traffic is written as a perfect worker would leave it, so that Spark is measured and nothing else. One in twenty input records is a
resend, and the accepted records are written in transactions. Half of the traffic is of one group.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from bench import topics
from bench.clusters import RESULTS, temporary_broker
from bench.errors import BenchError
from bench.measure import ROOT, environment, read
from bench.table import machine
from ringfence_kafka.protocol import wire_names

SIZES: Final = (1_000_000, 3_000_000, 10_000_000)
PARTITIONS: Final = 4
GROUPS: Final = 1_000
RESENDS: Final = 0.05
RECENT: Final = 5_000
"""A resend's original is one of so many of its partition."""
TRANSACTION_RECORDS: Final = 100_000
VALUE: Final = b"x" * 100
LOOK_EVERY_S: Final = 0.5

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    """One night."""

    records: int
    """Of the input."""
    accepted: int
    seconds: float
    """Duration of the whole process, the start of Spark included."""
    cpu_s: float
    peak_rss_bytes: int
    """Peak memory of the process and its JVM."""
    verdict: str

    @property
    def rate(self) -> float:
        """Input records a second."""
        return self.records / self.seconds


def run(bootstrap: str, folder: Path, sizes: Sequence[int], say: Say) -> list[Run]:
    """One after the other, each on topics of its own.

    Raises:
        BenchError: a run failed, or did not find the traffic clean.
    """
    found = []
    for size in sizes:
        name = f"bench-reconcile-{size}"
        began = time.monotonic()
        accepted = _write(bootstrap, name, size)
        say(f"{size:,} records written in {time.monotonic() - began:.0f} s")
        found.append(_judge(bootstrap, folder, name, size, accepted))
        say(f"{size:,} judged in {found[-1].seconds:.0f} s: {found[-1].rate:,.0f} records/s")
        topics.delete(bootstrap, _topics(name))
    return found


def _topics(name: str) -> list[str]:
    return [
        name,
        f"{name}.accepted",
        f"{name}.quarantine",
        wire_names.forward_topic(name, name),
        wire_names.journal_topic(name),
    ]


def _write(bootstrap: str, name: str, records: int) -> int:
    """Play the perfect worker; returns how many it accepted."""
    for topic in _topics(name):
        topics.create(bootstrap, topic, PARTITIONS)
    options = {
        "bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4", "log_level": 0,
        "queue.buffering.max.messages": 200_000,
    }  # fmt: skip
    source, target = Producer(options), Producer(options | {"transactional.id": name})
    target.init_transactions(topics.LIMIT_S)
    target.begin_transaction()
    rng, ends, accepted = random.Random(1), [0] * PARTITIONS, 0
    recent: list[list[tuple[bytes, bytes]]] = [[] for _ in range(PARTITIONS)]
    for number in range(records):
        group = 0 if number % 2 else rng.randrange(GROUPS)
        partition = group % PARTITIONS
        known = recent[partition]
        resend = bool(known) and rng.random() < RESENDS
        message = rng.choice(known) if resend else (b"id-%012d" % number, b"customer-%04d" % group)
        headers: list[tuple[str, str | bytes | None]] = [("_AMQ_DUPL_ID", message[0])]
        at_ms = time.time_ns() // 1_000_000
        _put(source, name, partition, message[1], headers, at_ms)
        if not resend:
            known.append(message)
            del known[: -2 * RECENT if len(known) > 4 * RECENT else 0]
            place = wire_names.source(name, partition) + b"%d" % ends[partition]
            _put(
                target,
                f"{name}.accepted",
                partition,
                message[1],
                [*headers, (wire_names.HEADER_SOURCE, place)],
                at_ms,
            )
            accepted += 1
        ends[partition] += 1
        if number % TRANSACTION_RECORDS == TRANSACTION_RECORDS - 1:
            target.commit_transaction(topics.LIMIT_S)
            target.begin_transaction()
    target.commit_transaction(topics.LIMIT_S)
    if source.flush(topics.LIMIT_S):
        raise BenchError(f"{name} could not be written")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition(name, *end) for end in enumerate(ends)], asynchronous=False)
    consumer.close()
    return accepted


def _put(
    producer: Producer,
    topic: str,
    partition: int,
    key: bytes,
    headers: list[tuple[str, str | bytes | None]],
    at_ms: int,
) -> None:
    while True:
        try:
            producer.produce(topic, VALUE, key, partition, headers=headers, timestamp=at_ms)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _judge(bootstrap: str, folder: Path, name: str, records: int, accepted: int) -> Run:
    config = folder / f"{name}.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{bootstrap}"\n[app]\nid = "{name}"\n'
        f"[reconcile]\nstate_dir = {json.dumps(str(folder / name))}\n"
        f'[[addresses]]\nname = "{name}"\npartitions = {PARTITIONS}\n'
    )
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "reconcile", "--json", "--config", str(config)],
        cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    watch = _Watch(process.pid)
    try:
        output, errors = process.communicate()
    finally:
        watch.stop()
        if process.poll() is None:
            process.kill()
    seconds = time.monotonic() - began
    if process.returncode not in (0, 1, 3):
        raise BenchError(f"{name}: exit code {process.returncode}: {errors[-2000:]}")
    document = json.loads(output)
    counts = document["addresses"][name]
    expected = (records, accepted, records - accepted)
    if (counts["input"], counts["accepted"], counts["duplicates"]) != expected or document[
        "verdict"
    ] != "clean":
        raise BenchError(f"{name}: expected {expected} and clean, found {counts}")
    return Run(records, accepted, seconds, watch.cpu_s, watch.peak_rss_bytes, document["verdict"])


class _Watch(threading.Thread):
    """Reads CPU and memory of a process and its children until it ends."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.cpu_s = 0.0
        self.peak_rss_bytes = 0
        self._pid = pid
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            try:
                reading = read(self._pid)
            except BenchError:
                return
            self.cpu_s = max(self.cpu_s, reading.cpu_s)
            self.peak_rss_bytes = max(self.peak_rss_bytes, reading.peak_rss_bytes)

    def stop(self) -> None:
        """Stop, and return when the thread has ended."""
        self._ended.set()
        self.join()


def show(runs: Sequence[Run], console: Console) -> None:
    """Print a row a size."""
    table = Table("input records", "seconds", "records/s", "CPU s", "CPU s / million", "peak RSS, MiB")
    for run in runs:
        table.add_row(
            f"{run.records:,}", f"{run.seconds:.1f}", f"{run.rate:,.0f}",
            f"{run.cpu_s:.1f}", f"{run.cpu_s / run.records * 1e6:,.1f}", f"{run.peak_rss_bytes / 2**20:,.0f}",
        )  # fmt: skip
    console.print(table)


def save(runs: Sequence[Run], path: Path) -> None:
    """Write everything measured."""
    document: dict[str, Any] = {
        **machine(),
        "load_average": os.getloadavg(),
        "runs": [asdict(run) | {"records_a_second": run.rate} for run in runs],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


@click.command("reconcile")
@click.option(
    "--records",
    type=click.IntRange(min=1),
    multiple=True,
    default=SIZES,
    show_default=True,
    help="May be repeated.",
)
def command(records: tuple[int, ...]) -> None:
    """Measure the nightly job: records a second, and memory."""
    console = Console()
    with temporary_broker() as (broker, folder):
        runs = run(broker.bootstrap_servers, folder, records, console.print)
    show(runs, console)
    save(runs, RESULTS / "reconcile.json")
