"""What happens in a world, made from a seed: messages, and faults at random steps. Nothing of it depends on the run, so that it can be shrunk."""

import dataclasses
import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

IDS: Final = 5
GROUPS: Final = 3
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
    LETTERS = "letters"
    """The topic of dead letters takes none for a while; what is not to become one must go on."""
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
            "transaction": self.transaction or None,
            "messages": " ".join(map(str, self.messages)) or None,
        }
        at = f", or at {self.at}" if self.at else ""
        shown = ", ".join(f"{name}={each}" for name, each in told.items() if each is not None)
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

    @property
    def calm(self) -> bool:
        """Whether nothing is refused, lost, late or away in it."""
        return all(each.kind in CALM or each.kind is Kind.SEND for each in self.happenings)

    def __str__(self) -> str:
        head = (
            f"seed {self.seed}: {self.partitions} partitions, {self.processes} processes, ring of {self.capacity}, "
            f"duplicates {'diverted' if self.divert else 'dropped'}"
        )
        return "\n".join([head, *map(str, self.happenings)])


_WEIGHTS: Final = {
    Kind.CRASH: 5, Kind.STOP: 2, Kind.HELD: 2, Kind.PAUSE: 5, Kind.CLOCK: 1, Kind.CUT: 3, Kind.LOST: 4, Kind.SLOW: 4, Kind.REFUSED: 4, Kind.MARKERS: 3,
    Kind.REBALANCE: 3, Kind.RETENTION: 1, Kind.COMPACTION: 2, Kind.OFFSETS: 1, Kind.CHANGELOG: 1, Kind.RECREATED: 1,
}  # fmt: skip
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
EXTRAS: Final = ("", "", "", "calm", "dropped", "tail", "replaced", "eaten")
THEMES: Final = ("taken over",) * 6 + ("", "", "", "calm", "calm", "dropped", "tail", "replaced", "eaten")
"""Of small schedules: what they are about; with none, faults of all kinds."""
SMALL_SHARE: Final = 0.85
SMALL_WITHIN_S: Final = 2.0
STRIKES_ONE: Final = frozenset(
    {Kind.CRASH, Kind.STOP, Kind.PAUSE, Kind.CUT, Kind.LOST, Kind.SLOW, Kind.REFUSED}
)
REQUESTS: Final = (
    "produce", "produce", "offsets", "end", "initialise", "describe", "fetch", "committed", "ends", "heartbeat", "join", "_read", "_read",
)  # fmt: skip
AT_WORK: Final = ("_read", "_read", "_read", "produce", "offsets", "end")
TAKEN_OVER_SHARE: Final = 0.4
"""Of schedules that have :func:`_awakening`."""
MOST_STEPS: Final = 400
KINDS: Final = tuple(_WEIGHTS)


def schedule(seed: int, *, faults: int | None = None) -> Schedule:
    """The schedule of a seed; with so many faults, if it is said."""
    dice = random.Random(seed)
    if faults is None and dice.random() < SMALL_SHARE:
        return _small(seed, dice)
    partitions, processes = dice.choice((1, 1, 2)), dice.choice((2, 2, 3))
    happenings = [_sending(dice, partitions) for _ in range(dice.randint(3, 7))]
    count = dice.choice((1, 2, 3, 4, 6, 8)) if faults is None else faults
    excluded = _ONCE - {dice.choice((Kind.OFFSETS, Kind.CHANGELOG, Kind.RECREATED))}
    taken_over = dice.random() < TAKEN_OVER_SHARE and faults is None
    faults_drawn = [
        _fault(dice, partitions, processes) for _ in range(min(count, 2) if taken_over else count)
    ]
    faults_drawn += [_awakening(dice)] if taken_over else []
    happenings += [each for each in faults_drawn if each.kind not in excluded]
    dice.shuffle(happenings)
    capacity, divert = dice.choice((3, 8, 8, 8)), dice.random() < 0.5
    if faults is None:
        happenings = _with_extra(random.Random(f"extra {seed}"), happenings, partitions, processes)
    return Schedule(seed, partitions, processes, capacity, divert, tuple(happenings))


def _small(seed: int, dice: random.Random) -> Schedule:
    """Some messages, one fault or two, and one thing that is asked: whether it matters who was away when."""
    partitions, theme = dice.choice((1, 1, 1, 2)), dice.choice(THEMES)
    happenings = [_sending(dice, partitions, most=3) for _ in range(dice.randint(1, 3))]
    capacity, divert = dice.choice((3, 8, 8, 8)), dice.random() < 0.5
    if theme == "taken over":
        happenings.insert(1, _awakening(dice))
        if dice.random() < 0.3:
            happenings.append(_fault(dice, partitions, 2))
    elif theme == "calm":
        happenings += [_fault(dice, partitions, 2, kind=dice.choice(CALM)) for _ in range(dice.randint(1, 2))]
        dice.shuffle(happenings)
    elif theme:
        happenings = _with_row(dice, happenings, Kind(theme), partitions, 2)
    else:
        happenings += [_fault(dice, partitions, 2) for _ in range(dice.randint(1, 2))]
        dice.shuffle(happenings)
    shortened = tuple(
        dataclasses.replace(each, within=min(each.within, SMALL_WITHIN_S)) for each in happenings
    )
    return Schedule(seed, partitions, 2, capacity, divert, shortened, small=True)


def _with_extra(
    dice: random.Random, happenings: list[Happening], partitions: int, processes: int
) -> list[Happening]:
    """With what comes in a row of its own; or without what is not calm."""
    extra = dice.choice(EXTRAS)
    if extra == "calm":
        return [
            each if each.kind is Kind.SEND else _fault(dice, partitions, processes, kind=dice.choice(CALM))
            for each in happenings
        ]
    return _with_row(dice, happenings, Kind(extra), partitions, processes) if extra else happenings


def _with_row(
    dice: random.Random, happenings: list[Happening], kind: Kind, partitions: int, processes: int
) -> list[Happening]:
    partition, process = dice.randrange(partitions), dice.randrange(processes)
    steps, within = gap(dice)
    row = [Happening(steps, within, kind, process=process, partition=partition)]
    if kind is Kind.TAIL:
        refused = Happening(
            MOST_STEPS, 5.0, Kind.REFUSED, dice.choice(("produce", "end")), count=dice.randint(1, 3)
        )
        row = [
            _sending(dice, partitions),
            refused,
            dataclasses.replace(row[0], steps=dice.randrange(40)),
            _sending(dice, partitions),
        ]
    if kind is Kind.EATEN:
        eaten = dataclasses.replace(row[0], steps=dice.choice((0, 0, 3, 10)))
        row = [_sending(dice, partitions, partition=partition), eaten]
    if kind in {Kind.REPLACED, Kind.EATEN}:
        happenings = [each for each in happenings if each.kind not in _ONCE]
    place = dice.randint(0, len(happenings))
    return [*happenings[:place], *row, *happenings[place:]]


_ONCE: Final = frozenset({Kind.OFFSETS, Kind.CHANGELOG, Kind.RECREATED})
"""With two of them nobody knows what was processed."""


def _awakening(dice: random.Random) -> Happening:
    """Somebody is away in the middle of their work, and comes back in the middle of an opening by somebody else."""
    kind = dice.choice((Kind.PAUSE, Kind.HELD, Kind.CUT))
    return Happening(
        MOST_STEPS, 5.0, kind, dice.choice(AT_WORK), seconds=30.0, count=dice.randrange(3), pinned=True
    )


def gap(dice: random.Random) -> tuple[int, float]:
    """Callbacks and seconds until something happens."""
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


def _sending(
    dice: random.Random, partitions: int, most: int = 4, *, partition: int | None = None
) -> Happening:
    messages = tuple(
        Message(
            None if dice.random() < 0.1 else b"i%d" % dice.randrange(IDS),
            None if dice.random() < 0.2 else b"g%d" % dice.randrange(GROUPS),
        )
        for _ in range(dice.randint(1, most))
    )
    return Happening(
        *gap(dice),
        Kind.SEND,
        partition=dice.randrange(partitions) if partition is None else partition,
        seconds=dice.random(),
        messages=messages,
        transaction=dice.choice(("", "", "", "committed", "aborted")),
    )


def _fault(dice: random.Random, partitions: int, processes: int, *, kind: Kind | None = None) -> Happening:
    kind = kind or dice.choices(KINDS, list(_WEIGHTS.values()))[0]
    pinned = kind in (Kind.PAUSE, Kind.CUT, Kind.HELD) and dice.random() < 0.6
    seconds = 30.0 if pinned else seconds_of(kind, dice)
    at = dice.choice(REQUESTS) if kind in STRIKES_ONE and dice.random() < 0.6 else ""
    steps, within = (MOST_STEPS, dice.choice((0.5, 5.0))) if at else gap(dice)
    return Happening(
        steps,
        within,
        kind,
        at,
        process=dice.randrange(processes),
        seconds=seconds,
        partition=dice.randrange(partitions),
        count=dice.randint(1, 3),
        disk_lost=kind is Kind.CRASH and dice.random() < 0.3,
        pinned=pinned,
    )
