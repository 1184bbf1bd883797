"""How much memory a worker needs for a backlog: at full speed, while its output is slow, while it is refused, and killed meanwhile."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from rich.console import Console
from rich.table import Table

from app.embedded import jars
from app.embedded.broker import EmbeddedBroker
from bench import measure, topics
from bench.contenders import ringfence
from bench.errors import BenchError
from bench.traffic import LOG_LEVEL, Expected, Plan, generate, publish
from conf import java

FAST: Final = "fast"
SLOW: Final = "slow"
REFUSED: Final = "refused"
KILLED: Final = "killed"
OUTPUTS: Final = (FAST, SLOW, REFUSED, KILLED)
KILLS: Final = 3
LIMIT_S: Final = 900.0
TOOL_LIMIT_S: Final = 60
MARKERS_LIMIT_S: Final = 60.0
POLL_S: Final = 0.25
QUOTA_BYTES: Final = 2 * 2**20
"""What a producer may write in a second while the output is slow."""
MIB: Final = 2**20
PROPERTIES: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Of the broker, so that something can be refused."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits."""

    messages: int
    partitions: int
    value_bytes: int

    @property
    def topic(self) -> str:
        """Its address."""
        return f"backlog-{self.messages}-{self.partitions}-{self.value_bytes}"


@dataclass(frozen=True, slots=True)
class Found:
    """Of one worker, and one backlog."""

    version: str
    backlog: Backlog
    output: str
    seconds: float
    """Until all was committed."""
    cpu_s: float
    peak_mib: float
    """Of the process with the highest one, where some were killed."""
    rest_mib: float
    """At the end, when all was done."""
    disturbed_mib: float
    """While the output was slow or refused."""
    exact: bool
    """Each ID was accepted once, in the order of its group."""


class Bench:
    """One broker, one worker at a time."""

    def __init__(
        self, broker: EmbeddedBroker, folder: Path, bound_mib: int, say: Callable[[str], None]
    ) -> None:
        """``bound_mib``: of what the worker has under way; 0 = its default."""
        self._bound_mib = bound_mib
        self._broker = broker
        self._bootstrap = broker.bootstrap_servers
        self._folder = folder
        self._say = say
        self._filled: dict[Backlog, Expected] = {}
        self._admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": LOG_LEVEL})

    def run(self, backlog: Backlog, output: str, seconds: float, version: str, place: Path) -> Found:
        """Work one backlog off.

        Args:
            backlog: Is made when it is not there.
            output: One of :data:`OUTPUTS`.
            seconds: How long the output is slow or refused, beginning when a tenth is done.
            version: What ``place`` is called.
            place: Root of the project, in this version or another.
        """
        expected = self._fill(backlog)
        name = f"{backlog.topic}-{output}-{version}"
        plan = Plan(backlog.messages, backlog.partitions)
        worker = ringfence.prepare(
            self._folder / name,
            self._bootstrap,
            name,
            backlog.topic,
            plan.ring,
            partitions=backlog.partitions,
        )
        if self._bound_mib:
            config = self._folder / name / "ringfence.toml"
            line = f"[app]\nbuffer_bytes_max = {self._bound_mib * MIB}\n"
            config.write_text(config.read_text("utf-8").replace("[app]\n", line))
        began = time.monotonic()
        peak = cpu = disturbed = rest = 0.0
        lives = KILLS + 1 if output == KILLED else 1
        with topics.Progress(self._bootstrap, name, backlog.topic, backlog.partitions) as progress:
            for life in range(1, lives + 1):
                log = self._folder / f"{name}-{life}.log"
                with measure.child([sys.executable, *worker.command], log, place) as child:
                    target = backlog.messages * life // lives
                    if output in {SLOW, REFUSED}:
                        self._reach(child, progress, backlog.messages // 10)
                        disturbed = self._disturb(child, output, worker.output, seconds)
                    last = self._reach(child, progress, target)
                    peak, cpu = max(peak, last.peak_rss_bytes / MIB), cpu + last.cpu_s
                    if life == lives:
                        rest = child.rss_bytes() / MIB
                        took = time.monotonic() - began
                        child.stop()
        counted = self._count(worker.output, backlog, expected)
        topics.delete(self._bootstrap, [worker.output, worker.forward, *worker.more_topics])
        exact = (counted.records, counted.distinct, counted.out_of_order) == (
            expected.distinct, expected.distinct, 0,
        )  # fmt: skip
        found = Found(
            version,
            backlog,
            output,
            round(took, 1),
            round(cpu, 1),
            round(peak, 1),
            round(rest, 1),
            round(disturbed, 1),
            exact,
        )
        self._say(f"{name}: {peak:,.0f} MiB, {took:,.0f} s, {'exact' if exact else f'NOT EXACT: {counted}'}")
        return found

    def _count(self, topic: str, backlog: Backlog, expected: Expected) -> topics.Counted:
        """A commit is confirmed before its markers are there: what is missing may come yet."""
        deadline = time.monotonic() + MARKERS_LIMIT_S
        while True:
            counted = topics.count(self._bootstrap, topic, backlog.partitions)
            if counted.records >= expected.distinct or time.monotonic() > deadline:
                return counted

    def _fill(self, backlog: Backlog) -> Expected:
        if backlog not in self._filled:
            topics.create(self._bootstrap, backlog.topic, backlog.partitions)
            plan = Plan(backlog.messages, backlog.partitions, value_bytes=backlog.value_bytes)
            self._filled[backlog] = publish(self._bootstrap, backlog.topic, generate(plan))
            self._say(f"{backlog.topic}: {backlog.messages:,} messages wait")
        return self._filled[backlog]

    def _reach(self, child: measure.Child, progress: topics.Progress, messages: int) -> measure.Reading:
        deadline = time.monotonic() + LIMIT_S
        while (done := progress.committed().messages) < messages:
            child.read()
            if time.monotonic() > deadline:
                raise BenchError(f"{done} of {messages} messages after {LIMIT_S:.0f} s:\n{child.tail()}")
            time.sleep(POLL_S)
        return child.read()

    def _disturb(self, child: measure.Child, output: str, topic: str, seconds: float) -> float:
        """MiB at the most meanwhile."""
        with self._slow() if output == SLOW else self._refused(topic):
            most, end = 0, time.monotonic() + seconds
            while time.monotonic() < end:
                child.read()
                most = max(most, child.rss_bytes())
                time.sleep(POLL_S)
        return most / MIB

    @contextmanager
    def _refused(self, topic: str) -> Iterator[None]:
        denied = AclBinding(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.WRITE,
            AclPermissionType.DENY,
        )  # fmt: skip
        for future in self._admin.create_acls([denied]).values():
            future.result(TOOL_LIMIT_S)
        yield
        pattern = AclBindingFilter(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.WRITE,
            AclPermissionType.DENY,
        )  # fmt: skip
        for future in self._admin.delete_acls([pattern]).values():
            future.result(TOOL_LIMIT_S)

    @contextmanager
    def _slow(self) -> Iterator[None]:
        quota = f"producer_byte_rate={QUOTA_BYTES}"
        self._quota("--add-config", quota)
        try:
            yield
        finally:
            self._quota("--delete-config", "producer_byte_rate")

    def _quota(self, *change: str) -> None:
        command = [
            str(java.find()), "-cp", jars.class_path(), "kafka.admin.ConfigCommand", "--bootstrap-server", self._bootstrap,
            "--alter", *change, "--entity-type", "clients", "--entity-default",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_LIMIT_S, check=False)
        if done.returncode:
            raise BenchError(f"no quota: {done.stdout}{done.stderr}")


def run(
    broker: EmbeddedBroker,
    folder: Path,
    backlogs: Sequence[Backlog],
    outputs: Sequence[str],
    seconds: float,
    versions: dict[str, Path],
    bound_mib: int,
    say: Callable[[str], None],
) -> list[Found]:
    """Each backlog with each output, by each version in turn."""
    bench = Bench(broker, folder, bound_mib, say)
    return [
        bench.run(backlog, output, seconds, version, place)
        for backlog in backlogs
        for output in outputs
        for version, place in versions.items()
    ]


def show(found: Sequence[Found], console: Console) -> None:
    """A table for a person."""
    table = Table(title="one worker, a backlog")
    for column in (
        "version",
        "messages",
        "lanes",
        "value",
        "output",
        "seconds",
        "CPU s / million",
        "peak",
        "at rest",
        "disturbed",
        "exact",
    ):
        table.add_column(column, justify="right")
    for each in found:
        backlog = each.backlog
        table.add_row(
            each.version, f"{backlog.messages:,}", str(backlog.partitions), f"{backlog.value_bytes:,} B", each.output,
            f"{each.seconds:,.0f}", f"{each.cpu_s / backlog.messages * 1e6:,.1f}", f"{each.peak_mib:,.0f} MiB",
            f"{each.rest_mib:,.0f} MiB", f"{each.disturbed_mib:,.0f} MiB", "yes" if each.exact else "NO",
        )  # fmt: skip
    console.print(table)


def save(found: Sequence[Found], path: Path) -> None:
    """As JSON."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(list(map(asdict, found)), indent=1) + "\n")
