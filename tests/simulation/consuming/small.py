"""Small schedules of consumers: one partition or two, two processes, some messages, and one thing that happens."""

import dataclasses
import random
from collections.abc import Callable, Mapping
from typing import Final

from tests.simulation.consuming.tasks import GROUPS, OUTCOMES, Task
from tests.simulation.schedules import CALM, MOST_STEPS, Happening, Kind, gap

BURST_S: Final = (0.0, 0.02, 0.5, 0.5, 2.5)
"""How long handlers have what is there while somebody is away: when they come back there must be something left to begin."""
SHORT_S: Final = (0.0,) * 4 + (0.02, 0.3, 0.3)
"""Shorter than any time that a run may take."""
AWAY_AT: Final = ("produce", "offsets", "end", "end", "heartbeat")
REFUSED_S: Final = 6.0
"""How long dead letters are."""
SLOW_S: Final = 6.0


def burst(
    dice: random.Random, count: int, seconds: tuple[float, ...], outcomes: tuple[str, ...]
) -> Happening:
    """So many messages at once."""
    tasks = tuple(
        Task(
            None if dice.random() < 0.1 else b"g%d" % dice.randrange(GROUPS),
            dice.choice(seconds),
            dice.choice(outcomes),
        )
        for _ in range(count)
    )
    return Happening(0, 0.0, Kind.SEND, messages=tasks)


def clocks(dice: random.Random) -> list[Happening]:
    """Perhaps it is another time of day for somebody."""
    return [
        Happening(0, 0.0, Kind.CLOCK, process=process, seconds=dice.choice((-1_000.0, 1_000.0)))
        for process in range(2)
        if dice.random() < 0.3
    ]


def taken_over(dice: random.Random) -> list[Happening]:
    """Somebody is away in the middle of their work, and comes back in the middle of an opening by somebody else."""
    kind = dice.choice((Kind.PAUSE, Kind.PAUSE, Kind.HELD, Kind.CUT))
    away = Happening(
        MOST_STEPS, 5.0, kind, dice.choice(AWAY_AT), seconds=30.0, count=dice.randrange(3), pinned=True
    )
    return [burst(dice, dice.randint(2, 5), BURST_S, OUTCOMES), away, *clocks(dice)]


def stopped(dice: random.Random) -> list[Happening]:
    """The holder ends in order, or loses the partition, in the middle of a long message; who comes next reads slowly."""
    lost = Happening(
        MOST_STEPS, dice.choice((0.3, 1.0)), dice.choice((Kind.STOP, Kind.REBALANCE)),
        process=dice.randrange(2), seconds=2.0,
    )  # fmt: skip
    slow = Happening(MOST_STEPS, 3.0, Kind.SLOW, dice.choice(("ends", "_read")), count=3, seconds=SLOW_S)
    return [burst(dice, 2, (6.0,), ("ok", "stubborn")), lost, slow]


def killers(dice: random.Random) -> list[Happening]:
    """Some messages end the process that handles them."""
    several = burst(dice, dice.randint(2, 4), SHORT_S, ("ok", "ok", "fail"))
    deadly = [
        Task(b"g%d" % dice.randrange(GROUPS), dice.choice(SHORT_S), "kill") for _ in range(dice.randint(1, 2))
    ]
    messages = [*several.messages, *deadly]
    dice.shuffle(messages)
    return [dataclasses.replace(several, messages=tuple(messages))]


def sick(dice: random.Random) -> list[Happening]:
    """Nothing can be written for a while; then somebody dies of something else."""
    kinds = dice.choice((("produce", "end"), ("end", "end"), ("offsets", "end")))
    refused = Happening(MOST_STEPS, 3.0, Kind.REFUSED, kinds[0], count=dice.randint(1, 6))
    died = Happening(MOST_STEPS, 5.0, Kind.CRASH, kinds[1], seconds=0.5)
    return [burst(dice, dice.randint(3, 5), SHORT_S, ("ok",)), refused, died]


def refused_letters(dice: random.Random) -> list[Happening]:
    """The topic of dead letters takes none for a while."""
    letters = Happening(*gap(dice), Kind.LETTERS, seconds=REFUSED_S)
    return [letters, burst(dice, dice.randint(3, 5), SHORT_S, ("ok", "ok", "ok", "reject", "hopeless"))]


def other_clocks(dice: random.Random) -> list[Happening]:
    """A message fails, and then it is another one's, whose clock is behind."""
    skewed = [
        Happening(0, 0.0, Kind.CLOCK, process=process, seconds=dice.choice((-1_000.0, 1_000.0)))
        for process in range(2)
    ]
    gone = Happening(MOST_STEPS, 2.0, dice.choice((Kind.CRASH, Kind.STOP)), "end", seconds=8.0)
    return [*skewed[: dice.randint(1, 2)], burst(dice, 2, SHORT_S, ("hopeless", "hopeless", "fail")), gone]


def calm(dice: random.Random) -> list[Happening]:
    """Nothing is refused, lost, late or away."""
    moved = Happening(
        *gap(dice), dice.choice(CALM), seconds=dice.choice((0.1, 2.0)), process=dice.randrange(2)
    )
    again = Happening(*gap(dice), Kind.REBALANCE)
    first = burst(dice, dice.randint(1, 4), (*BURST_S, 6.0), OUTCOMES)
    return [first, moved, *([again] if dice.random() < 0.5 else [])]


THEMES: Final[Mapping[Callable[[random.Random], list[Happening]], int]] = {
    taken_over: 8, stopped: 1, killers: 1, sick: 1, refused_letters: 1, other_clocks: 1, calm: 3,
}  # fmt: skip
"""What a schedule is about, and how often."""
