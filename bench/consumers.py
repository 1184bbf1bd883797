"""Consumer processes of the handover benchmark, what they noted, and traffic for them."""

import contextlib
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

from confluent_kafka import Producer

from bench import measure, worker_log
from bench.errors import BenchError
from bench.traffic import LOG_LEVEL

PARTITIONS: Final = 4
GROUPS: Final = 50
"""Of each partition."""
CONCURRENCY: Final = 40
"""Handlers of a member: more than ever have work, so that none waits for another partition's."""
FRESH_S: Final = 1.0
"""A member that begins a message so soon after its making has no backlog."""
LIMIT_S: Final = 120.0
POLL_S: Final = 0.1

T = TypeVar("T")


class Ran(NamedTuple):
    """One run of a message; moments in seconds since the epoch."""

    member: int
    partition: int
    offset: int
    began: float
    produced: float
    ended: float | None


class Member:
    """One consumer process."""

    def __init__(
        self, number: int, config: Path, address: str, handler_s: float, resources: contextlib.ExitStack
    ) -> None:
        self.number = number
        self.log = config.parent / f"consumer-{number}.log"
        self._notes = config.parent / f"consumer-{number}.notes"
        command = [
            "env", f"BENCH_NOTES={self._notes}", f"BENCH_HANDLER_S={handler_s}", sys.executable, "-m", "app", "consume",
            address, "--handler", "bench.offset_handler:handle", "--consumer-group", f"{address}-group", "--concurrency", str(CONCURRENCY),
            "--web-port", "0", "--config", str(config),
        ]  # fmt: skip
        self.child = resources.enter_context(measure.child(command, self.log))

    def ran(self) -> list[Ran]:
        """All runs until now, in order of their begin."""
        if not self._notes.exists():
            return []
        begun: dict[tuple[int, int], Ran] = {}
        for line in self._notes.read_text().splitlines():
            what, partition, offset, moment, value = line.split()
            place = (int(partition), int(offset))
            if what == "begin":
                begun[place] = Ran(self.number, *place, float(moment), float(value), None)
            else:
                begun[place] = begun[place]._replace(ended=float(moment))
        return sorted(begun.values(), key=lambda each: each.began)

    def assigned(self, before: float) -> float:
        """Return the time of its last assignment before this moment."""
        events = worker_log.events(self.log.read_text("utf-8", "replace"))
        return max(event.moment for event in events if event.moment <= before and _ASSIGNED.match(event.text))


_ASSIGNED: Final = re.compile(r"assigned (no )?partition")


class Steady:
    """Messages at a steady rate, by turns to all partitions; the value is the moment of their making."""

    def __init__(self, bootstrap: str, topic: str, rate: float) -> None:
        """``rate``: a second, all partitions together."""
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": LOG_LEVEL})
        self._topic = topic
        self._rate = rate
        self._sent = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def send(self, partition: int | None = None) -> None:
        """One more; to the next partition where none is given."""
        partition = self._sent % PARTITIONS if partition is None else partition
        key = b"%d-%d" % (partition, self._sent // PARTITIONS % GROUPS)
        self._producer.produce(self._topic, repr(time.time()).encode(), key, partition)
        self._producer.poll(0)
        self._sent += 1

    def _run(self) -> None:
        began, before = time.monotonic(), self._sent
        while not self._stopping.wait(min(0.01, 1 / self._rate)):
            while self._sent - before < (time.monotonic() - began) * self._rate:
                self.send()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(LIMIT_S)


def configure(folder: Path, bootstrap: str, address: str) -> Path:
    """Return a configuration of its own, progress included."""
    folder.mkdir(parents=True)
    config = folder / "ringfence.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{bootstrap}"\n[app]\nid = "{address}"\ndata_dir = "{folder}"\n'
        f'[[addresses]]\nname = "{address}"\npartitions = {PARTITIONS}\n'
    )
    return config


def until(condition: Callable[[], T | None], what: str, members: Sequence[Member]) -> T:
    """Wait for something.

    Raises:
        BenchError: it did not come in time; the text has the ends of the logs.
    """
    deadline = time.monotonic() + LIMIT_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            tails = "\n".join(member.child.tail() for member in members)
            raise BenchError(f"{what}: not within {LIMIT_S:.0f} s, load {os.getloadavg()}:\n{tails}")
        time.sleep(POLL_S)
    return found


def until_shared(*members: Member) -> None:
    """Until messages produced from now on come to each of these members from as many partitions, and from all; none lags."""
    began = time.time()

    def shared() -> bool:
        runs = sorted((run for member in members for run in member.ran()), key=lambda each: each.began)
        owners = {
            run.partition: run.member
            for run in runs
            if run.produced > began and run.began - run.produced < FRESH_S
        }
        counts = Counter(owners.values())
        return len(owners) == PARTITIONS and all(
            counts[member.number] == PARTITIONS / len(members) for member in members
        )

    until(shared, "partitions shared", members)
