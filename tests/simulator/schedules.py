"""What may happen in a world: messages, and faults at random steps. Nothing of it depends on the run, so that it can be shrunk."""

import dataclasses
import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

P = TypeVar("P", bound="Schedule")
IMPLICIT_SHARE: Final = 0.5
STEPS_BETWEEN: Final = (0, 3, 10, 40, 120)
"""Callbacks between two happenings: less than one. An opening takes some 50, a transaction 20."""
SECONDS_BETWEEN: Final = (0.0, 0.1, 1.0, 8.0)
"""They come sooner where so much virtual time is up: less than one. A world at rest takes many seconds for a few callbacks."""


class Kind(StrEnum):
    """Of what happens."""

    SEND = "send"
    CRASH = "crash"
    """SIGKILL; the process comes back after a while, perhaps without its disk."""
    HELD = "held"
    """What a process sends stays on its way, and it dies a second later. What it sent arrives long after that."""
    STOP = "stop"
    """SIGTERM; the process comes back after a while."""
    PAUSE = "pause"
    """SIGSTOP, for less than a session or for more."""
    CLOCK = "clock"
    """The time of day jumps."""
    CUT = "cut"
    """The network of one process."""
    LOST = "lost"
    """Answers to the next requests of a process, which have happened."""
    SLOW = "slow"
    """The next requests of a process."""
    LATE = "late"
    """The next requests of one kind of a process are long on their way, the others are not; ``at`` says which, and ``count`` how many."""
    BELATED = "belated"
    """The next requests of one kind of a process: who sent them is told that they are lost, and goes on. They arrive nevertheless: right behind
    another one, or when the seconds are up."""
    REFUSED = "refused"
    """The next requests of a process, with an error that does not pass by itself."""
    MARKERS = "markers"
    """Of transactions: they come late."""
    REBALANCE = "rebalance"
    RETENTION = "retention"
    """The log start of an input moves up to what is committed."""
    EATEN = "eaten"
    """Retention deletes what nobody has processed: of that what is there, or half of it."""
    COMPACTION = "compaction"
    """Of the changelogs."""
    OFFSETS = "offsets"
    """The group's expire."""
    CHANGELOG = "changelog"
    """Is deleted and created again: what lanes know is lost, and what they have done is not to be done again."""
    RECREATED = "recreated"
    """The input is deleted, and another one is created under its name; not where less than what it began with was processed."""
    REPLACED = "replaced"
    """The same during a rebalance, while no lane runs; and the new input goes beyond where the old one was."""
    DROPPED = "dropped"
    """A batch that was fetched does not get to its lane; a message follows, by which that is seen."""
    GROWN = "grown"
    """The input gets more partitions, ``count`` in all; only where each group and each ID keeps its home."""
    LETTERS = "letters"
    """The topic of dead letters takes none for a while; what is not to become one must go on."""
    TARGET = "target"
    """A topic that handlers send to takes nothing for a while; ``request`` says which."""
    TAIL = "tail"
    """The input loses what nobody has processed, and other messages take its place, as after an unclean election; not where a lane is at work
    on it (what it has in its hands then is gone, and nobody can know)."""


class Message(NamedTuple):
    """Without an ID it is never a duplicate."""

    id: bytes | None
    group: bytes | None

    def __str__(self) -> str:
        return f"{_shown(self.id)}@{_shown(self.group)}"


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happens."""

    steps: int
    """After so many callbacks since the last ..."""
    within: float
    """... or so many seconds, whichever comes first."""
    kind: Kind
    at: str = ""
    """Or, sooner still, when a request of this name arrives, of whatever process; it strikes that one."""
    process: int = 0
    seconds: float = 0.0
    partition: int = 0
    count: int = 0
    messages: tuple[Any, ...] = ()
    disk_lost: bool = False
    pinned: bool = False
    """Of a pause, a cut, or what is held: it ends in the middle of an opening by another process, if there is one before the seconds are up."""
    request: str = ""
    """Of what is belated: of which kind the requests are ..."""
    until: str = ""
    """... and behind which they arrive, of whatever process."""
    transaction: str = ""
    """Of messages: ``committed`` or ``aborted``, so many seconds later."""

    def __str__(self) -> str:
        told: dict[str, Any] = {
            "process": self.process if not self.messages else None,
            "seconds": round(self.seconds, 3) or None,
            "partition": self.partition if self.messages or self.kind is Kind.RETENTION else None,
            "count": self.count or None,
            "disk_lost": self.disk_lost or None,
            "pinned": self.pinned or None,
            "request": self.request or None,
            "until": self.until or None,
            "transaction": self.transaction or None,
            "messages": " ".join(map(str, self.messages)) or None,
        }
        at = f", or at {self.at}" if self.at else ""
        shown = ", ".join(f"{name}={item}" for name, item in told.items() if item is not None)
        return f"after {self.steps:3d} callbacks or {self.within:.2f} s{at}: {self.kind.value} ({shown})"


def _shown(value: bytes | None) -> str:
    return "-" if value is None else value.decode()


@dataclass(frozen=True, slots=True)
class Schedule:
    """A small world and its troubles."""

    seed: int
    """Of the run; that of the schedule too, until it is shrunk."""
    partitions: int
    processes: int
    capacity: int
    divert: bool
    happenings: tuple[Happening, ...]
    small: bool = False
    """As little as can go wrong; workers do not look at their topics."""
    implicit: bool = False
    """Transactions are written in three requests, and each has an epoch of its own."""
    brokers: int = 1
    """That lead partitions."""
    envelopes: bool = False
    """There is another address, for parts of transactions."""
    lanes: int = 0
    """As the address has it: lanes of its partitions; 0 = each partition is a lane."""

    @property
    def calm(self) -> bool:
        """Whether nothing is refused, lost, late or away in it."""
        return all(happening.kind in CALM or happening.kind is Kind.SEND for happening in self.happenings)

    @property
    def way(self) -> str:
        return f"transactions in {'three' if self.implicit else 'five'} requests, {self.brokers} brokers"

    def __str__(self) -> str:
        head = (
            f"seed {self.seed}: {self.partitions} partitions{f' in {self.lanes} lanes' * bool(self.lanes)}, "
            f"{self.processes} processes, ring of {self.capacity}, "
            f"duplicates {'diverted' if self.divert else 'dropped'}, {self.way}"
        )
        return "\n".join([head, *map(str, self.happenings)])


CALM: Final = (
    Kind.STOP,
    Kind.REBALANCE,
    Kind.REBALANCE,
    Kind.REBALANCE,
    Kind.CLOCK,
    Kind.COMPACTION,
    Kind.RETENTION,
)
"""In these nothing is refused, lost, late or away."""
SMALL_SHARE: Final = 0.85
SMALL_WITHIN_S: Final = 2.0
STRIKES_ONE: Final = frozenset(
    {Kind.CRASH, Kind.STOP, Kind.PAUSE, Kind.CUT, Kind.LOST, Kind.SLOW, Kind.REFUSED}
)
MOST_STEPS: Final = 400


def gap(dice: random.Random, at: str = "") -> tuple[int, float]:
    """Callbacks and seconds until something happens; if it waits for a request, those that it waits for at most."""
    if at:
        return MOST_STEPS, dice.choice((0.5, 5.0))
    return int(dice.choice(STEPS_BETWEEN) * dice.random()), dice.choice(SECONDS_BETWEEN) * dice.random()


def seconds_of(kind: Kind, dice: random.Random) -> float:
    """How long a fault of this kind lasts, or how far a clock jumps."""
    return {
        Kind.CRASH: dice.choice((0.1, 2.0, 8.0)),
        Kind.STOP: dice.choice((0.1, 2.0, 8.0)),
        Kind.HELD: dice.choice((2.0, 8.0)),
        Kind.PAUSE: dice.choice((0.5, 5.0, 10.0, 65.0)),
        Kind.CLOCK: dice.choice((-1_000.0, 100.0, 100_000.0)),
        Kind.CUT: dice.choice((0.5, 5.0, 20.0)),
        Kind.SLOW: dice.choice((0.5, 5.0)),
        Kind.MARKERS: dice.choice((0.5, 5.0)),
    }.get(kind, 0.0) * dice.uniform(0.5, 1.0)


REQUESTS_BELATED: Final = (
    "end", "end", "end", "offsets", "offsets", "offsets", "add_partitions", "add_partitions", "add_offsets", "produce", "produce", "initialise",
    "initialise", "heartbeat", "join",
)  # fmt: skip
"""What is lost to its sender alone, by kind, and how often."""
BEHIND: Final = ("add_partitions", "add_partitions", "produce", "offsets", "end", "initialise", "")
TRIGGERS: Final = ("add_partitions", "add_partitions", "offsets", "end", "initialise", "")


def belated(dice: random.Random) -> Happening:
    """Requests that arrive although it was said that they do not."""
    at = dice.choice(TRIGGERS)
    steps, within = gap(dice, at)
    return Happening(
        steps, within, Kind.BELATED, at,
        process=dice.randrange(2), seconds=dice.choice((0.5, 5.0, 12.0)) * dice.uniform(0.5, 1.0), count=dice.choice((1, 1, 2)),
        request=dice.choice(REQUESTS_BELATED), until=dice.choice(BEHIND),
    )  # fmt: skip


def in_its_way(plan: P) -> P:
    """With how transactions are written in it, by its seed."""
    dice = random.Random(f"ways {plan.seed}")
    return dataclasses.replace(plan, implicit=dice.random() < IMPLICIT_SHARE, brokers=dice.choice((1, 1, 3)))
