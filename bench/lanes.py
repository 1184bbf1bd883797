"""Measure the cost of a worker with many lanes: opening them, idling, sharing them with another worker, stopping."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from confluent_kafka import KafkaException
from rich.console import Console

from agents.decision.partitioner import Partitioner
from app.embedded import ports
from app.embedded.broker import EmbeddedBroker
from bench import measure, topics
from bench.clusters import RESULTS, temporary_broker
from bench.errors import EXIT_NOT_WELL, BenchError
from bench.lanes_results import Found, Idle, Opened, Shape, save
from bench.traffic import Message, publish
from ringfence_kafka.protocol import wire_names

APP_ID: Final = "bench-lanes"
HOST: Final = "127.0.0.1"
ORIGINALS: Final = 3
"""Messages that each lane gets in a round of traffic, and its first one once more."""
MADE_LIMIT_S: Final = 600.0
READY_LIMIT_S: Final = 600.0
DONE_LIMIT_S: Final = 120.0
SETTLE_S: Final = 15.0
"""Between the end of traffic and what counts as idle."""
POLL_S: Final = 0.1
MIB: Final = 2**20
_READY: Final = b" ringfence.worker: ready: "
_NOT: Final = (
    b" ringfence.worker: assigned ",
    b" ringfence.worker: not ready: ",
    b" ringfence.worker: rebalance: ",
)


class Bench:
    """The topics of all addresses, and workers on them."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, shape: Shape) -> None:
        self._broker = broker
        self._folder = folder
        self._shape = shape
        self._homes = _groups(shape.partitions)
        self._rounds = 0

    def run(self, say: Callable[[str], None]) -> Found:
        """All of it, once.

        Raises:
            BenchError: it could not be measured.
        """
        began = time.monotonic()
        self._make()
        say(f"topics are there after {time.monotonic() - began:.0f} s")
        with self._worker("one") as worker:
            first = self._opened(worker)
            say(f"first start: {first}")
            traffic_s = self._traffic()
            idle = self._idle(worker)
            say(f"traffic {traffic_s:.1f} s, {idle}")
            stop_s = _stop(worker)
            say(f"stopped after {stop_s:.1f} s")
        with self._worker("one") as worker:
            again = self._opened(worker)
            say(f"second start: {again}")
            self._traffic()
            began = time.monotonic()
            with self._worker("two") as other:
                joined_s = self._until_ready(worker, other, since=began)
                say(f"another joined after {joined_s:.1f} s")
                self._traffic()
                began = time.monotonic()
                _stop(other)
                left_s = self._until_ready(worker, since=began)
            say(f"and left after {left_s:.1f} s")
            self._traffic()
            peak = worker.child.read().peak_rss_bytes / MIB
            _stop(worker)
        inexact = self._inexact()
        return Found(
            self._shape, first, traffic_s, idle, stop_s, again, joined_s, left_s, round(peak, 1), inexact
        )

    def _make(self) -> None:
        lines = [
            f'[kafka]\nbootstrap_servers = "{self._broker.bootstrap_servers}"\n[app]\nid = "{APP_ID}"',
            f'data_dir = "{self._folder}"\n[address_defaults]\npartitions = {self._shape.partitions}',
            *(f'[[addresses]]\nname = "{name}"' for name in self._shape.names),
        ]
        self._config.write_text("\n".join(lines) + "\n", "utf-8")
        command = [sys.executable, "-m", "app", "topics", "create", "--config", str(self._config)]
        done = subprocess.run(
            command, cwd=measure.ROOT, env=measure.environment(), capture_output=True, text=True,
            timeout=MADE_LIMIT_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise BenchError(f"topics create ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        self._settle()

    def _settle(self) -> None:
        """Wait while the broker is busy with thousands of new partitions, which is not what is measured."""
        deadline = time.monotonic() + MADE_LIMIT_S
        for name in self._shape.names:
            for topic in (
                name,
                wire_names.changelog_topic(APP_ID, name),
                wire_names.accepted_topic(name),
                wire_names.quarantine_topic(name),
            ):
                while True:
                    try:
                        topics.settle(self._broker.bootstrap_servers, topic, self._shape.partitions)
                        break
                    except KafkaException as error:
                        if time.monotonic() > deadline:
                            raise BenchError(f"{topic} is not there: {error}") from error

    @property
    def _config(self) -> Path:
        return self._folder / "ringfence.toml"

    @contextlib.contextmanager
    def _worker(self, name: str) -> "Iterator[Worker]":
        log = self._folder / f"{name}-{self._rounds}.log"
        command = [
            sys.executable, "-m", "app", "worker", "--config", str(self._config), "--web-port", str(ports.choose(HOST)),
        ]  # fmt: skip
        with measure.child(command, log, environ={"RINGFENCE_APP__INSTANCE": name}) as child:
            yield Worker(child, log)

    def _opened(self, worker: "Worker") -> Opened:
        broker = measure.read(self._broker.pid)
        seconds = self._until_ready(worker, since=broker.moment_s)
        cost = worker.child.read().cpu_s
        broker_s = measure.read(self._broker.pid).cpu_s - broker.cpu_s
        return Opened(
            round(seconds, 1), round(cost, 1), round(broker_s, 1), worker.rss_mib, worker.child.files()
        )

    def _until_ready(self, *workers: "Worker", since: float) -> float:
        """All lanes are open in one of these: seconds from ``since`` on."""
        lanes = self._shape.partitions * self._shape.addresses
        while sum(worker.ready for worker in workers) < lanes or not all(worker.ready for worker in workers):
            for worker in workers:
                worker.child.read()
            if time.monotonic() - since > READY_LIMIT_S:
                tails = "\n".join(worker.child.tail() for worker in workers)
                raise BenchError(f"lanes are not open after {READY_LIMIT_S:.0f} s:\n{tails}")
            time.sleep(POLL_S)
        return round(time.monotonic() - since, 1)

    def _traffic(self) -> float:
        """Return a round of messages through all lanes, the first of the round before sent again: seconds until all are processed."""
        began = time.monotonic()
        for name in self._shape.names:
            publish(self._broker.bootstrap_servers, name, self._messages())
        self._rounds += 1
        sent = self._rounds * self._shape.partitions * (ORIGINALS + 1)
        for name in self._shape.names:
            with topics.Progress(
                self._broker.bootstrap_servers, APP_ID, name, self._shape.partitions
            ) as progress:
                while progress.committed().messages < sent:
                    if time.monotonic() - began > DONE_LIMIT_S:
                        raise BenchError(f"{name} is not processed after {DONE_LIMIT_S:.0f} s")
                    time.sleep(POLL_S)
        return round(time.monotonic() - began, 1)

    def _messages(self) -> Iterator[Message]:
        for partition, group in enumerate(self._homes):
            firsts = [
                f"{max(self._rounds - 1, 0)}-0",
                *(f"{self._rounds}-{number}" for number in range(ORIGINALS)),
            ]
            # In the first round the first message comes twice in it.
            for first in firsts:
                yield Message(partition, group, f"{partition}-{first}".encode(), b"x" * 100)

    def _idle(self, worker: "Worker") -> Idle:
        time.sleep(SETTLE_S)
        broker, before = measure.read(self._broker.pid), worker.child.read()
        time.sleep(self._shape.idle_s)
        after, broker_after = worker.child.read(), measure.read(self._broker.pid)
        seconds = after.moment_s - before.moment_s
        return Idle(
            round(100 * (after.cpu_s - before.cpu_s) / seconds, 1),
            round(100 * (broker_after.cpu_s - broker.cpu_s) / seconds, 1),
            worker.rss_mib,
        )

    def _inexact(self) -> list[str]:
        expected = self._rounds * self._shape.partitions * ORIGINALS
        found = {
            name: topics.count(
                self._broker.bootstrap_servers, wire_names.accepted_topic(name), self._shape.partitions
            )
            for name in self._shape.names
        }
        return [
            f"{name}: {counted.records} records, {counted.distinct} IDs, {counted.out_of_order} out of order; {expected} are due"
            for name, counted in found.items()
            if (counted.records, counted.distinct, counted.out_of_order) != (expected, expected, 0)
        ]


@dataclass(frozen=True, slots=True)
class Worker:
    """A process, and what it says."""

    child: measure.Child
    log: Path

    @property
    def ready(self) -> int:
        """How many lanes it has, all open; 0 = it is not ready."""
        said = self.log.read_bytes()
        at = said.rfind(_READY)
        if at < 0 or any(said.rfind(item) > at for item in _NOT):
            return 0
        return int(said[at + len(_READY) :].split()[0].replace(b",", b""))

    @property
    def rss_mib(self) -> float:
        """Now."""
        return round(self.child.rss_bytes() / MIB, 1)


def _stop(worker: Worker) -> float:
    began = time.monotonic()
    worker.child.stop()
    return round(time.monotonic() - began, 1)


def _groups(partitions: int) -> list[bytes]:
    """One group that is at home in each partition."""
    home = Partitioner(partitions)
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < partitions:
        group = b"group-%d" % number
        found.setdefault(home[group], group)
        number += 1
    return [found[index] for index in range(partitions)]


@click.command("lanes")
@click.option("--lanes", "count", type=click.IntRange(min=1), default=1_000, show_default=True)
@click.option("--addresses", type=click.IntRange(min=1), default=10, show_default=True)
@click.option(
    "--idle", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds without messages."
)
def command(count: int, addresses: int, idle: float) -> None:
    """Measure a worker of many lanes: how it opens them, does nothing, shares them, and stops."""
    console = Console()
    with temporary_broker() as (broker, folder):
        found = Bench(broker, folder, Shape(count, addresses, idle)).run(console.print)
    save(found, RESULTS / "lanes.json")
    for name in found.inexact:
        console.print(name)
    if found.inexact:
        sys.exit(EXIT_NOT_WELL)
