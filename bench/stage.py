"""Two workers that come and go, on an address with full rings and steady traffic."""

import contextlib
import itertools
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

from app.embedded.broker import EmbeddedBroker
from bench import holds, measure, topics, worker_log
from bench.contenders import ringfence
from bench.errors import BenchError
from bench.measure import Child
from bench.steady import Reader, Seen, Traffic
from bench.topics import Progress
from bench.traffic import Plan, generate, publish
from bench.worker_log import Event

PARTITIONS: Final = 4
LIMIT_S: Final = 180.0
NOTHING_S: Final = 5.0
"""How long it is watched while nothing happens."""
POLL_S: Final = 0.1
NOTHING, JOINS, LEAVES, RETURNS, DIES = "nothing", "joins", "leaves", "returns", "dies"

T = TypeVar("T")
_HELD: Final = re.compile(rf"([\d.]+) ([\d.]+) ([\d.]+) {holds.HOLD}")


@dataclass(frozen=True, slots=True)
class Happened:
    """One thing that happened, and what was seen of it."""

    what: str
    began: float
    """Seconds since the epoch, as all moments here."""
    opened: float
    """When all lanes were open."""
    ended: float
    """When messages of all lanes came out that were made after that."""
    stayed: frozenset[int]
    """Partitions that were with the same worker before and after."""
    seen: Sequence[Seen]
    events: Sequence[Event]
    """What the workers that are there at the end have logged."""
    held: tuple[float, float]
    cpu_s: float


def longest_hold(logs: Iterable[str], since: float) -> tuple[float, float]:
    """The longest that one callback kept an event loop, and the most CPU that one took, by what :mod:`bench.holds` has written."""
    found = [match for log in logs for match in _HELD.finditer(log) if float(match[1]) >= since]
    return max((float(match[2]) for match in found), default=0.0), max(
        (float(match[3]) for match in found), default=0.0
    )


@dataclass(slots=True)
class _Worker:
    """One that runs."""

    child: Child
    log: Path

    def lanes(self) -> frozenset[int] | None:
        """Its partitions, when it has been ready since its last assignment."""
        found = worker_log.settled(worker_log.events(self.log.read_text("utf-8", "replace")))
        return None if found is None else frozenset(int(each.rpartition("-")[2]) for each in found)


class Stage:
    """Two workers of one version, one after the other, on an address with full rings and steady traffic."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, root: Path, name: str, ids: int) -> None:
        """Nothing runs yet; ``root`` is that of the version."""
        self._bootstrap, self._folder, self._root, self._name = broker.bootstrap_servers, folder, root, name
        self._ids = ids
        self._resources = contextlib.ExitStack()
        self._runs = itertools.count(1)
        self._verbs: dict[str, Sequence[str]] = {}
        self.made: Sequence[str] = ()
        """Topics beside the input."""
        self.workers: dict[str, _Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def fill(self) -> None:
        """Have the first worker accept as many IDs as all rings hold."""
        messages = PARTITIONS * self._ids
        topics.create(self._bootstrap, self._name, PARTITIONS)
        publish(
            self._bootstrap,
            self._name,
            generate(Plan(messages, PARTITIONS, resends=0.0, ring=1, value_bytes=1)),
        )
        self.start("one")
        with Progress(self._bootstrap, self._name, self._name, PARTITIONS) as progress:
            self.until(lambda: progress.committed().messages >= messages, "the rings' filling")

    def run(self, rate: int) -> Iterable["Happened"]:
        """What happens, in order."""
        reader = self._resources.enter_context(Reader(self._bootstrap, f"{self._name}.accepted", PARTITIONS))
        plan = Plan(0, PARTITIONS, resends=0.0, ring=1, value_bytes=1, seed=2)
        self._resources.enter_context(Traffic(self._bootstrap, self._name, plan, rate))
        steps: tuple[tuple[str, Callable[[], object], int], ...] = (
            (NOTHING, lambda: time.sleep(NOTHING_S), 1),
            (JOINS, lambda: self.start("two"), 2),
            (LEAVES, lambda: self.end("two", signal.SIGTERM), 1),
            (RETURNS, lambda: self.start("two"), 2),
            (DIES, lambda: self.end("two", signal.SIGKILL), 1),
        )
        for what, do, workers in steps:
            self._flowing(reader)
            time.sleep(1.0)  # what a change before has left to be done
            reader.forget()
            before, owners = self._cpu_s(), self._owners()
            began = time.time()
            do()
            self.until(lambda: self._settled(workers), f"{what}: all lanes open")  # noqa: B023 - called at once
            opened = time.time()
            self._flowing(reader)
            ended, after, now = time.time(), self._cpu_s(), self._owners()
            stayed = frozenset(each for each in now if owners[each] == now[each])
            cpu = sum(after[name] - before.get(name, 0.0) for name in after)
            logs = [each.log.read_text("utf-8", "replace") for each in self.workers.values()]
            events = [event for log in logs for event in worker_log.events(log)]
            held = longest_hold(logs, began)
            yield Happened(what, began, opened, ended, stayed, reader.seen(), events, held, cpu)

    def _cpu_s(self) -> dict[str, float]:
        return {name: each.child.read().cpu_s for name, each in self.workers.items()}

    def start(self, name: str) -> None:
        """Start a worker; one that ran before has its disk again."""
        folder = self._folder / self._name / name
        if name not in self._verbs:
            worker = ringfence.prepare(
                folder, self._bootstrap, self._name, self._name, self._ids, partitions=PARTITIONS
            )
            self._verbs[name] = worker.command[2:]  # without ``-m app``
            self.made = (worker.output, worker.forward, *worker.more_topics)
        command = [sys.executable, "-c", Path(holds.__file__).read_text("utf-8"), *self._verbs[name]]
        log = folder / f"output-{next(self._runs)}.log"
        child = self._resources.enter_context(measure.child(command, log, self._root))
        self.workers[name] = _Worker(child, log)

    def end(self, name: str, how: signal.Signals) -> None:
        """End a worker, in order or at once."""
        worker = self.workers.pop(name)
        if how is signal.SIGKILL:
            worker.child.kill()
        else:
            worker.child.stop()

    def _owners(self) -> dict[int, str]:
        """Partition → the worker that has it."""
        return {lane: name for name, each in self.workers.items() for lane in each.lanes() or ()}

    def _settled(self, workers: int) -> bool:
        lanes = [each.lanes() for each in self.workers.values()]
        return len(lanes) == workers and all(lanes) and sum(len(each) for each in lanes if each) == PARTITIONS

    def _flowing(self, reader: Reader) -> None:
        """Until each lane has accepted what was produced from now on: no backlog is left."""
        began = time.time()
        self.until(
            lambda: len({each.partition for each in reader.seen() if each.produced_at > began}) == PARTITIONS,
            "traffic through all lanes",
        )

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        """Wait for something.

        Raises:
            BenchError: it did not come.
        """
        deadline = time.monotonic() + LIMIT_S
        while not (found := condition()):
            if time.monotonic() > deadline:
                tails = "\n".join(each.child.tail() for each in self.workers.values())
                raise BenchError(f"{what}: not within {LIMIT_S:.0f} s:\n{tails}")
            for each in self.workers.values():
                each.child.read()  # has it ended?
            time.sleep(POLL_S)
        return found
