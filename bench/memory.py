"""How much memory one consumer needs before a backlog in many partitions, which its handlers are too slow for."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from bench import measure
from bench.errors import BenchError
from bench.traffic import LOG_LEVEL
from ringfence_kafka import wire

GROUPS: Final = 50
"""Of each partition."""
HANDLER_S: Final = 0.1
CONCURRENCY: Final = 20
STARTED_LIMIT_S: Final = 240.0
MIB: Final = 2**20
POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in each partition."""

    messages: int
    value_bytes: int

    @property
    def name(self) -> str:
        """Of its address."""
        return f"memory-{self.value_bytes}"


BACKLOGS: Final = (Backlog(25_000, 100), Backlog(2_000, 10_000), Backlog(20, 900_000))


@dataclass(frozen=True, slots=True)
class Found:
    """Of one backlog."""

    partitions: int
    backlog: Backlog
    ready_s: float
    """From the start until all partitions are held."""
    rss_mib: float
    """At the end of the stretch."""
    peak_mib: float
    cpu_percent: float
    """Of one core, in the second half of the stretch."""
    handled: int
    """Messages, in all."""


def run(
    bootstrap: str,
    folder: Path,
    partitions: int,
    seconds: float,
    options: Sequence[str],
    say: Callable[[str], None],
) -> list[Found]:
    """Each backlog is filled and consumed for so many seconds. ``options``: more of the verb ``consume``."""
    found = []
    for each in BACKLOGS:
        _fill(bootstrap, partitions, each)
        found.append(_measure(bootstrap, folder, partitions, each, seconds, options))
        say(f"{each.name}: {found[-1].peak_mib:,.0f} MiB")
    return found


def show(found: Sequence[Found], console: Console) -> None:
    """A table for a person."""
    table = Table(title="one consumer, slow handlers, a backlog in each partition")
    for column in ("partitions", "backlog", "value", "ready", "RSS", "peak", "CPU", "handled"):
        table.add_column(column, justify="right")
    for each in found:
        backlog = each.backlog
        table.add_row(
            str(each.partitions), f"{backlog.messages:,} each", f"{backlog.value_bytes:,} B", f"{each.ready_s:.1f} s",
            f"{each.rss_mib:,.0f} MiB", f"{each.peak_mib:,.0f} MiB", f"{each.cpu_percent:.0f} %", f"{each.handled:,}",
        )  # fmt: skip
    console.print(table)


def save(found: Sequence[Found], path: Path) -> None:
    """As JSON."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(list(map(asdict, found)), indent=1) + "\n")


def _fill(bootstrap: str, partitions: int, backlog: Backlog) -> None:
    topic = f"{backlog.name}.accepted"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL})
    new = [NewTopic(each, partitions, 1) for each in (topic, wire.dead_letter_topic(backlog.name))]
    for future in admin.create_topics(new).values():
        future.result(60)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.kbytes": 200_000,
            "log_level": LOG_LEVEL,
        }
    )
    value = b"x" * backlog.value_bytes
    for number in range(backlog.messages):
        for partition in range(partitions):
            while True:
                with contextlib.suppress(BufferError):
                    producer.produce(topic, value, b"%d-%d" % (partition, number % GROUPS), partition)
                    break
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(120):
        raise BenchError(f"not all messages reached {topic}")


def _measure(
    bootstrap: str, folder: Path, partitions: int, backlog: Backlog, seconds: float, options: Sequence[str]
) -> Found:
    address = backlog.name
    config = folder / f"{address}.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{bootstrap}"\n[app]\nid = "{address}"\ndata_dir = "{folder}"\n'
        f'[[addresses]]\nname = "{address}"\npartitions = {partitions}\n'
    )
    notes = folder / f"{address}.notes"
    command = [
        "env", f"BENCH_NOTES={notes}", f"BENCH_HANDLER_S={HANDLER_S}", sys.executable, "-m", "app", "consume",
        address, "--handler", "bench.slow:handle", "--consumer-group", f"{address}-group", "--concurrency", str(CONCURRENCY),
        "--web-port", "0", "--config", str(config), *options,
    ]  # fmt: skip
    log = folder / f"{address}.log"
    with measure.child(command, log) as child:
        began = time.monotonic()
        while log.read_text("utf-8", "replace").count(" held with token ") < partitions:
            child.read()
            if time.monotonic() - began > STARTED_LIMIT_S:
                raise BenchError(
                    f"not all partitions are held after {STARTED_LIMIT_S:.0f} s:\n{child.tail()}"
                )
            time.sleep(POLL_S)
        ready = time.monotonic() - began
        time.sleep(seconds / 2)
        half = child.read()
        time.sleep(seconds / 2)
        last = child.read()
        handled = notes.stat().st_size if notes.exists() else 0
        cpu = (last.cpu_s - half.cpu_s) / (last.moment_s - half.moment_s)
        return Found(
            partitions, backlog, round(ready, 1), round(child.rss_bytes() / MIB, 1), round(last.peak_rss_bytes / MIB, 1),
            round(100 * cpu, 1), handled,
        )  # fmt: skip
