"""How long a worker's lanes are missed when it ends, while another one is already running."""

import contextlib
import itertools
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from bench import measure, topics, worker_log
from bench.contenders import ringfence
from bench.errors import BenchError
from bench.measure import Child
from bench.steady import Reader, Seen, Traffic
from bench.topics import Progress
from bench.traffic import Plan, generate, publish
from bench.worker_log import Event
from ringfence_kafka.protocol import wire_names

INPUT: Final = "bench-takeover"
APP_ID: Final = "bench-takeover"
PARTITIONS: Final = 4
RING: Final = 20_000
RATE: Final = 1_000
"""Messages a second."""
HISTORY: Final = 100_000
"""Messages before the first measurement, so that each ring is full."""
LIMIT_S: Final = 90.0
POLL_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0
"""A signal comes at a random moment: how long ago the last heartbeat was is part of the answer."""

T = TypeVar("T")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Takeover:
    """A worker ended and the other one took its lanes. All seconds count from the signal."""

    signal: str
    noticed_s: float
    """The survivor learns of it and closes its own lanes."""
    assigned_s: float
    """The group has given it all lanes."""
    opened_s: float
    """All lanes of the ended worker are open."""
    restored_records: int
    """From the changelogs of those lanes, all together."""
    restore_s: float
    """The longest restore of one of them; part of the time between assigned and opened."""
    first_s: float
    """A reader of the output has the first message of one of them that the survivor accepted."""
    all_s: float
    """The same of the last of them."""
    own_standstill_s: float
    """The longest silence of a lane that was the survivor's all the time."""


@dataclass(frozen=True, slots=True)
class End:
    """State of a worker that was ended."""

    signal: signal.Signals
    at: float
    lanes: frozenset[int]
    """Partitions that were its own."""
    closed: Mapping[int, int]
    """Lanes that it closed in order → next input offset; it has accepted all messages below that itself."""

    def took_over(self, each: Seen) -> bool:
        """Whether the survivor must have accepted this message.

        A killed worker accepts nothing that is produced after its end; one that leaves in order goes on for a moment.
        """
        if each.partition not in self.lanes:
            return False
        if self.signal is signal.SIGKILL:
            return each.produced_at > self.at
        return each.offset >= self.closed.get(each.partition, sys.maxsize)


def judge(end: End, survivor: Sequence[Event], seen: Sequence[Seen]) -> Takeover | None:
    """Return the measurement; None while the survivor's lanes, old and new, do not all deliver again."""
    opened = {_partition(name): item for name, item in worker_log.opened(survivor, end.at).items()}
    noticed = worker_log.first(survivor, worker_log.REBALANCE, end.at)
    assigned = worker_log.last(survivor, worker_log.ASSIGNED, end.at)
    if noticed is None or assigned is None or len(opened) < PARTITIONS:
        return None
    moments: dict[int, float] = {}
    resumed: set[int] = set()
    for item in seen:
        if end.took_over(item):
            moments.setdefault(item.partition, item.seen_at)
        if item.produced_at > opened[item.partition].moment:
            resumed.add(item.partition)
    if moments.keys() != end.lanes or len(resumed) < PARTITIONS:
        return None
    new = [opened[lane] for lane in end.lanes]
    return Takeover(
        signal=end.signal.name,
        noticed_s=noticed - end.at,
        assigned_s=assigned - end.at,
        opened_s=max(item.moment for item in new) - end.at,
        restored_records=sum(item.records for item in new),
        restore_s=max(item.restore_s for item in new),
        first_s=min(moments.values()) - end.at,
        all_s=max(moments.values()) - end.at,
        own_standstill_s=longest_silence(seen, opened.keys() - end.lanes, end.at),
    )


def longest_silence(seen: Sequence[Seen], partitions: Iterable[int], since: float) -> float:
    """Return the longest time after ``since`` between two messages of one partition, of these."""
    longest = 0.0
    for partition in partitions:
        moments = [
            since,
            *(item.seen_at for item in seen if item.partition == partition and item.seen_at > since),
        ]
        longest = max([longest, *(later - earlier for earlier, later in itertools.pairwise(moments))])
    return longest


def _partition(lane: str) -> int:
    return int(lane.rpartition("-")[2])


@dataclass(slots=True)
class _Member:
    """A worker that runs, with a disk of its own."""

    child: Child
    log: Path

    def events(self) -> list[Event]:
        return worker_log.events(self.log.read_text("utf-8", "replace"))


class Pair:
    """Two workers on one address; each that ends is replaced by one with an empty disk."""

    def __init__(self, bootstrap: str, folder: Path, resources: contextlib.ExitStack) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._resources = resources
        self._numbers = itertools.count(1)
        self.members = [self._new(), self._new()]

    def _new(self) -> _Member:
        folder = self._folder / f"worker-{next(self._numbers)}"
        worker = ringfence.prepare(folder, self._bootstrap, APP_ID, INPUT, RING)
        log = folder / "output.log"
        return _Member(
            self._resources.enter_context(measure.child([sys.executable, *worker.command], log)), log
        )

    def replace(self, number: int) -> None:
        """Start another one in the place of one that has ended."""
        self.members[number] = self._new()

    def settled(self) -> list[frozenset[int]] | None:
        """Return the partitions of each, once all lanes are open and each has some."""
        found = [worker_log.settled(member.events()) for member in self.members]
        lanes = [frozenset(map(_partition, item)) for item in found if item]
        whole = len(lanes) == len(found) and sum(map(len, lanes)) == PARTITIONS
        return lanes if whole else None

    def tails(self) -> str:
        """Return the last lines of both logs."""
        return "\n".join(member.child.tail() for member in self.members)

    def end(self, number: int, how: signal.Signals, lanes: frozenset[int]) -> End:
        """End one, at once or in order."""
        member, at = self.members[number], time.time()
        if how is signal.SIGKILL:
            member.child.kill()
            return End(how, at, lanes, {})
        member.child.stop()
        closed = worker_log.closed(member.events(), at)
        return End(how, at, lanes, {_partition(name): offset for name, offset in closed.items()})


def run(
    bootstrap: str, folder: Path, signals: Sequence[signal.Signals], say: Say, seed: int = 1
) -> list[Takeover]:
    """End one of two workers, in turn, once with each of these signals.

    Raises:
        BenchError: lanes did not come back within :data:`LIMIT_S`.
    """
    rng = random.Random(seed)
    topics.create(bootstrap, INPUT, PARTITIONS)
    publish(bootstrap, INPUT, generate(Plan(HISTORY, PARTITIONS, ring=RING, seed=seed)))
    output = wire_names.accepted_topic(INPUT)
    takeovers: list[Takeover] = []
    with contextlib.ExitStack() as resources:
        pair = Pair(bootstrap, folder, resources)
        progress = resources.enter_context(Progress(bootstrap, APP_ID, INPUT, PARTITIONS))
        _until(lambda: pair.settled() and progress.committed().messages >= HISTORY, "a start", pair)
        reader = resources.enter_context(Reader(bootstrap, output, PARTITIONS))
        # No resend, so that every message is to come out.
        plan = Plan(0, PARTITIONS, resends=0.0, ring=1, value_bytes=1, seed=seed + 1)
        resources.enter_context(Traffic(bootstrap, INPUT, plan, RATE))
        for turn, how in enumerate(signals):
            number = turn % 2
            lanes = _until(pair.settled, "both workers with lanes", pair)[number]
            _until_flowing(reader, pair)
            time.sleep(rng.uniform(0, PAUSE_MAX_S))
            end = pair.end(number, how, lanes)
            survivor = pair.members[1 - number]
            found = _until(lambda: judge(end, survivor.events(), reader.seen()), "the takeover", pair)  # noqa: B023 - called at once
            takeovers.append(found)
            say(
                f"  {how.name}, {len(lanes)} lanes: first message after {found.first_s:.2f} s, of all after {found.all_s:.2f} s"
            )
            reader.forget()
            if turn + 1 < len(signals):
                pair.replace(number)
    return takeovers


def _until(condition: Callable[[], T | None], what: str, pair: Pair) -> T:
    """Wait for something."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise BenchError(f"{what}: not within {LIMIT_S:.0f} s:\n{pair.tails()}")
        time.sleep(POLL_S)
    return found


def _until_flowing(reader: Reader, pair: Pair) -> None:
    """Until each lane has accepted what was produced from now on: no backlog is left."""
    began = time.time()
    _until(
        lambda: len({item.partition for item in reader.seen() if item.produced_at > began}) == PARTITIONS,
        "traffic through all lanes",
        pair,
    )
