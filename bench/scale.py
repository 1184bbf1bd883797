"""How cost grows with the work: one thing at a time, from a load in the middle, each point verified."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition
from rich.console import Console
from rich.table import Table

from app.embedded.broker import EmbeddedBroker
from bench import measure, topics
from bench.contenders import ringfence
from bench.errors import BenchError
from bench.job import POLL_S, STALL_LIMIT_S
from bench.measure import Child, Reading
from bench.table import machine
from bench.traffic import LOG_LEVEL, Plan, generate, publish
from ringfence_kafka import wire

DUPLICATES, BYTES, LANES, ADDRESSES = "duplicates", "bytes", "lanes", "addresses"
RING: Final = 20_000
WARMING: Final = 200_000

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker is given."""

    messages: int = 400_000
    """In all addresses together."""
    resends: float = 0.05
    """Their share."""
    value_bytes: int = 100
    lanes: int = 4
    """Of each address."""
    addresses: int = 1


BASE: Final = Load()
SERIES: Final[dict[str, tuple[Load, ...]]] = {
    DUPLICATES: tuple(replace(BASE, resends=each) for each in (0.0002, 0.05, 0.2, 0.5, 0.8)),
    BYTES: (
        BASE,
        replace(BASE, messages=300_000, value_bytes=1_024),
        replace(BASE, messages=60_000, value_bytes=10_240),
        replace(BASE, messages=8_000, value_bytes=102_400),
    ),
    LANES: tuple(replace(BASE, lanes=each) for each in (4, 16, 64, 256)),
    ADDRESSES: tuple(replace(BASE, lanes=1, addresses=each) for each in (1, 10, 100)),
}
_QUICK_PART: Final = 20
_QUICK_MIN: Final = 20_000


@dataclass(frozen=True, slots=True)
class Point:
    """One load, measured from the first commit that is seen to the last."""

    load: Load
    measured: int
    """Messages that were committed meanwhile."""
    seconds: float
    cpu_s: float
    broker_cpu_s: float
    peak_rss_bytes: int
    exact: bool
    """What came out is each ID once, and nothing else."""

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.measured / self.seconds

    @property
    def cpu(self) -> float:
        """CPU seconds of the worker for a million messages."""
        return self.cpu_s / self.measured * 1e6

    @property
    def broker_cpu(self) -> float:
        """The same of the broker."""
        return self.broker_cpu_s / self.measured * 1e6


def loads(only: Sequence[str], *, quick: bool) -> list[Load]:
    """Those of the named series, each once; quick: the smallest and the largest of each, with few messages."""
    found: dict[Load, None] = {}
    for name in only or SERIES:
        series = SERIES[name]
        for each in (series[0], series[-1]) if quick else series:
            few = max(each.messages // _QUICK_PART, min(each.messages, _QUICK_MIN))
            found[replace(each, messages=few) if quick else each] = None
    return list(found)


def run(broker: EmbeddedBroker, folder: Path, wanted: Sequence[Load], say: Say) -> list[Point]:
    """Each load with a worker and topics of its own. Before them one that does not count: a broker's JVM compiles what it does often.

    Raises:
        BenchError: a worker failed, or stood still.
    """
    found: list[Point] = []
    _point(broker, folder / "warming", "scale-warming", replace(BASE, messages=WARMING))
    for number, load in enumerate(wanted):
        found.append(_point(broker, folder / f"scale-{number}", f"scale-{number}", load))
        say(line(found[-1]))
    return found


def _point(broker: EmbeddedBroker, folder: Path, app_id: str, load: Load) -> Point:
    bootstrap = broker.bootstrap_servers
    names = [f"{app_id}-{each}" for each in range(load.addresses)]
    worker = ringfence.prepare(
        folder, bootstrap, app_id, names[0], RING, partitions=load.lanes, more=names[1:]
    )
    expected = {}
    for seed, name in enumerate(names, 1):
        plan = Plan(
            load.messages // load.addresses, load.lanes, resends=load.resends, ring=RING,
            value_bytes=load.value_bytes, seed=seed,
        )  # fmt: skip
        expected[name] = publish(bootstrap, name, generate(plan))
    total = sum(each.total for each in expected.values())
    command = [sys.executable, *worker.command]
    with (
        measure.child(command, folder / "worker.log") as child,
        _Committed(bootstrap, app_id, names, load.lanes) as committed,
    ):
        first, last, messages, peak = _follow(child, broker.pid, committed, total)
        child.stop()
    exact = True
    for name, those in expected.items():
        counted = topics.count(bootstrap, wire.accepted_topic(name), load.lanes)
        exact = exact and counted.records == counted.distinct == those.distinct
    gone = [each for name in names for each in (name, wire.accepted_topic(name), wire.forward_topic(app_id, name),
            wire.changelog_topic(app_id, name), wire.quarantine_topic(name))]  # fmt: skip
    topics.delete(bootstrap, gone)
    return Point(
        load, messages, last[0].moment_s - first[0].moment_s, last[0].cpu_s - first[0].cpu_s, last[1] - first[1], peak, exact
    )  # fmt: skip


class _Committed:
    """How many messages of the inputs a group has committed."""

    def __init__(self, bootstrap: str, group: str, names: Sequence[str], lanes: int) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_uncommitted", "log_level": LOG_LEVEL}
        )  # fmt: skip
        self._partitions = [TopicPartition(name, each) for name in names for each in range(lanes)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def __call__(self) -> int:
        deadline = time.monotonic() + topics.LIMIT_S
        while True:
            try:
                found = self._consumer.committed(self._partitions, topics.LIMIT_S)
            except KafkaException:  # a coordinator that has just been chosen refuses for a moment
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return sum(max(each.offset, 0) for each in found)


_Sample = tuple[Reading, float]


def _follow(
    child: Child, broker_pid: int, committed: Callable[[], int], total: int
) -> tuple[_Sample, _Sample, int, int]:
    """The first and the last sample that saw progress, messages between them, and the peak of resident memory."""
    first: tuple[int, _Sample] | None = None
    done, changed = 0, time.monotonic()
    while True:
        now = committed()
        sample = (child.read(), measure.read(broker_pid).cpu_s)
        if now > done:
            done, changed = now, time.monotonic()
            first = first or (now, sample)
        if done >= total:
            break
        if time.monotonic() - changed > STALL_LIMIT_S:
            raise BenchError(f"stands still at {done} of {total} messages:\n{child.tail()}")
        time.sleep(POLL_S)
    if first is None or first[0] == done:
        raise BenchError(f"all {total} messages were done before it could be measured: take more")
    return first[1], sample, done - first[0], sample[0].peak_rss_bytes


def line(each: Point) -> str:
    """One point in words."""
    load = each.load
    return (
        f"{load.resends:.2%} duplicates, {load.value_bytes:,} bytes, {load.addresses} x {load.lanes} lanes: {each.rate:,.0f} messages/s, "
        f"{each.cpu:.2f} CPU s / million, the broker's {each.broker_cpu:.2f}, {each.peak_rss_bytes / 2**20:,.0f} MiB, "
        f"{'exact' if each.exact else 'NOT EXACT'}"
    )


def show(found: Sequence[Point], console: Console) -> None:
    """A line a point, by series."""
    table = Table(
        "",
        "duplicates",
        "bytes",
        "addresses",
        "lanes of each",
        "messages/s",
        "CPU s / million",
        "the broker's",
        "MiB",
        "exact",
    )
    for name, series in SERIES.items():
        for each in [each for each in found if each.load in series]:
            load = each.load
            table.add_row(
                name, f"{load.resends:.2%}", f"{load.value_bytes:,}", str(load.addresses), str(load.lanes), f"{each.rate:,.0f}",
                f"{each.cpu:.2f}", f"{each.broker_cpu:.2f}", f"{each.peak_rss_bytes / 2**20:,.0f}", "yes" if each.exact else "NO",
            )  # fmt: skip
    console.print(table)


def save(found: Sequence[Point], path: Path) -> list[Point]:
    """Write all points that are known: those of earlier runs that were not measured anew stay. Returns them."""
    known = {each.load: each for each in [*read(path), *found]}
    document: dict[str, Any] = {**machine(), "points": [asdict(each) for each in known.values()]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return list(known.values())


def read(path: Path) -> list[Point]:
    """What was saved; none where nothing was."""
    if not path.exists():
        return []
    return [
        Point(**{**each, "load": Load(**each["load"])})
        for each in json.loads(path.read_text("utf-8"))["points"]
    ]
