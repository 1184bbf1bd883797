"""Possible happenings in a world: messages, and faults at random steps. None depends on the run, so that a schedule can be shrunk."""

import dataclasses
import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

P = TypeVar("P", bound="Schedule")
IMPLICIT_SHARE: Final = 0.5
STEPS_BETWEEN: Final = (0, 3, 10, 40, 120)
"""Callbacks between two happenings are fewer than one of these. An opening takes some 50, a transaction 20."""
SECONDS_BETWEEN: Final = (0.0, 0.1, 1.0, 8.0)
"""Virtual seconds between two happenings are fewer than one of these, if they pass first."""


class Kind(StrEnum):
    """Kinds of happenings."""

    SEND = "send"
    CRASH = "crash"
    """SIGKILL; the process comes back after a while, perhaps without its disk."""
    HELD = "held"
    """Requests of a process stay on their way, and it dies half a second later. They arrive long after that."""
    STOP = "stop"
    PAUSE = "pause"
    """SIGSTOP, for less than a session or for more."""
    CLOCK = "clock"
    CUT = "cut"
    LOST = "lost"
    """Answers to the next requests of a process are lost; the requests were executed."""
    SLOW = "slow"
    LATE = "late"
    """The next requests of one kind (``at``) of a process are long on their way, the others are not; ``count``: their number."""
    BELATED = "belated"
    """The sender of the next requests of one kind sees them fail; they arrive nevertheless, behind another request or after the seconds."""
    REFUSED = "refused"
    """The next requests of a process are refused with a permanent error."""
    MARKERS = "markers"
    REBALANCE = "rebalance"
    RETENTION = "retention"
    """The log start of an input moves up to what is committed."""
    EATEN = "eaten"
    """Retention deletes all unprocessed records, or half of them."""
    COMPACTION = "compaction"
    OFFSETS = "offsets"
    CHANGELOG = "changelog"
    """The changelog is deleted and created again: the lanes' knowledge is lost, but their work must not be repeated."""
    RECREATED = "recreated"
    """The input is deleted, and another one is created under its name, unless less than its first offsets was processed."""
    REPLACED = "replaced"
    """As RECREATED, but during a rebalance, while no lane runs; the new input goes beyond the old one's position."""
    DROPPED = "dropped"
    """A fetched batch does not reach its lane; a later message reveals that."""
    GROWN = "grown"
    """The input gets more partitions, ``count`` in all; only where each group and each ID keeps its home."""
    LETTERS = "letters"
    """The dead-letter topic refuses writes for a while; messages that need no dead letter must continue."""
    TARGET = "target"
    """A topic that handlers send to refuses writes for a while; ``request`` names it."""
    TAIL = "tail"
    """The input loses unprocessed records, as after an unclean election, unless a lane works on it: nobody could know."""


class Message(NamedTuple):
    """A message; without an ID it is never a duplicate."""

    id: bytes | None
    group: bytes | None

    def __str__(self) -> str:
        return f"{_shown(self.id)}@{_shown(self.group)}"


@dataclass(frozen=True, slots=True)
class Happening:
    """A message or fault of a schedule."""

    steps: int
    """Callbacks since the last happening after which it is due ..."""
    within: float
    """... or seconds since then, whichever pass first."""
    kind: Kind
    at: str = ""
    """... or, sooner still, the name of a request: it strikes the process whose request arrives."""
    process: int = 0
    seconds: float = 0.0
    partition: int = 0
    count: int = 0
    messages: tuple[Any, ...] = ()
    disk_lost: bool = False
    pinned: bool = False
    """Whether a pause, a cut or a hold ends in the middle of an opening by another process, if there is one before the seconds are up."""
    request: str = ""
    """Kind of the belated requests ..."""
    until: str = ""
    """... and the kind of request, of any process, behind which they arrive."""
    transaction: str = ""
    """End of the messages' transaction, ``committed`` or ``aborted``, after ``seconds``."""

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
    partitions: int
    processes: int
    capacity: int
    divert: bool
    happenings: tuple[Happening, ...]
    small: bool = False
    """Whether as little as possible can go wrong; workers then do not look at their topics."""
    implicit: bool = False
    """Whether transactions are written in three requests, and each has an epoch of its own."""
    brokers: int = 1
    envelopes: bool = False
    lanes: int = 0
    observe: bool = False

    @property
    def calm(self) -> bool:
        return all(happening.kind in CALM or happening.kind is Kind.SEND for happening in self.happenings)

    @property
    def way(self) -> str:
        return f"transactions in {'three' if self.implicit else 'five'} requests, {self.brokers} brokers"

    def __str__(self) -> str:
        head = (
            f"seed {self.seed}: {self.partitions} partitions{f' in {self.lanes} lanes' * bool(self.lanes)}, "
            f"{self.processes} processes, ring of {self.capacity}, "
            f"duplicates {'observed' if self.observe else 'diverted' if self.divert else 'dropped'}, {self.way}"
        )
        return "\n".join([head, *map(str, self.happenings)])


CALM: Final = (
    Kind.STOP, Kind.REBALANCE, Kind.REBALANCE, Kind.REBALANCE, Kind.CLOCK, Kind.COMPACTION, Kind.RETENTION,
)  # fmt: skip
SMALL_SHARE: Final = 0.85
SMALL_WITHIN_S: Final = 2.0
STRIKES_ONE: Final = frozenset(
    {Kind.CRASH, Kind.STOP, Kind.PAUSE, Kind.CUT, Kind.LOST, Kind.SLOW, Kind.REFUSED}
)
MOST_STEPS: Final = 400


def gap(dice: random.Random, at: str = "") -> tuple[int, float]:
    """Return callbacks and seconds until something happens; if it waits for a request, the most that it waits."""
    if at:
        return MOST_STEPS, dice.choice((0.5, 5.0))
    return int(dice.choice(STEPS_BETWEEN) * dice.random()), dice.choice(SECONDS_BETWEEN) * dice.random()


def seconds_of(kind: Kind, dice: random.Random) -> float:
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
BEHIND: Final = ("add_partitions", "add_partitions", "produce", "offsets", "end", "initialise", "")
TRIGGERS: Final = ("add_partitions", "add_partitions", "offsets", "end", "initialise", "")


def belated(dice: random.Random) -> Happening:
    """Return a happening whose requests arrive although their sender saw them fail."""
    at = dice.choice(TRIGGERS)
    steps, within = gap(dice, at)
    return Happening(
        steps, within, Kind.BELATED, at,
        process=dice.randrange(2), seconds=dice.choice((0.5, 5.0, 12.0)) * dice.uniform(0.5, 1.0), count=dice.choice((1, 1, 2)),
        request=dice.choice(REQUESTS_BELATED), until=dice.choice(BEHIND),
    )  # fmt: skip


def in_its_way(plan: P) -> P:
    dice = random.Random(f"ways {plan.seed}")
    return dataclasses.replace(plan, implicit=dice.random() < IMPLICIT_SHARE, brokers=dice.choice((1, 1, 3)))
