"""Small schedules of consumers: one or two partitions, two processes, some messages, and one event."""

import dataclasses
import random
from collections.abc import Mapping
from typing import Any, Final

from tests.simulator.consumers.schedule_parts import (
    AGES,
    BURST_S,
    GROUPS,
    LONG,
    OUTCOMES,
    SHORT_S,
    SLOW_S,
    Task,
    Theme,
    after,
    burst,
)
from tests.simulator.schedules import CALM, MOST_STEPS, Happening, Kind, belated, gap

AWAY_AT: Final = ("produce", "offsets", "end", "end", "heartbeat")
REFUSED_S: Final = 6.0
LONG_S: Final = 30.0


def clocks(dice: random.Random) -> list[Happening]:
    return [
        Happening(0, 0.0, Kind.CLOCK, process=process, seconds=dice.choice((-1_000.0, 1_000.0)))
        for process in range(2)
        if dice.random() < 0.3
    ]


def away(dice: random.Random) -> Happening:
    """A process is away in the middle of its work, and returns while another one opens the partition."""
    kind = dice.choice((Kind.PAUSE, Kind.PAUSE, Kind.HELD, Kind.CUT))
    return Happening(
        MOST_STEPS, 5.0, kind, dice.choice(AWAY_AT), seconds=30.0, count=dice.randrange(3), pinned=True
    )


def taken_over(dice: random.Random) -> list[Happening]:
    gone = away(dice)
    return [burst(dice, dice.randint(2, 5), BURST_S, OUTCOMES), gone, *clocks(dice)]


def stopped(dice: random.Random) -> list[Happening]:
    """The holder ends in order, or loses the partition, during a long message; the next holder reads slowly."""
    lost = Happening(
        MOST_STEPS, dice.choice((0.3, 1.0)), dice.choice((Kind.STOP, Kind.REBALANCE)),
        process=dice.randrange(2), seconds=2.0,
    )  # fmt: skip
    slow = Happening(MOST_STEPS, 3.0, Kind.SLOW, dice.choice(("ends", "_read")), count=3, seconds=SLOW_S)
    return [burst(dice, 2, (6.0,), ("ok", "stubborn")), lost, slow]


def killers(dice: random.Random) -> list[Happening]:
    several = burst(dice, dice.randint(2, 4), SHORT_S, ("ok", "ok", "fail"))
    deadly = [
        Task(b"g%d" % dice.randrange(GROUPS), dice.choice(SHORT_S), "kill") for _ in range(dice.randint(1, 2))
    ]
    messages = [*several.messages, *deadly]
    dice.shuffle(messages)
    return [dataclasses.replace(several, messages=tuple(messages))]


def sick(dice: random.Random) -> list[Happening]:
    """Nothing can be written for a while; then a process dies for another reason."""
    kinds = dice.choice((("produce", "end"), ("end", "end"), ("offsets", "end")))
    refused = Happening(MOST_STEPS, 3.0, Kind.REFUSED, kinds[0], count=dice.randint(1, 6))
    died = Happening(MOST_STEPS, 5.0, Kind.CRASH, kinds[1], seconds=0.5)
    return [burst(dice, dice.randint(3, 5), SHORT_S, ("ok",)), refused, died]


def refused_letters(dice: random.Random) -> list[Happening]:
    letters = Happening(*gap(dice), Kind.LETTERS, seconds=REFUSED_S)
    return [letters, burst(dice, dice.randint(3, 5), SHORT_S, ("ok", "ok", "ok", "reject", "hopeless"))]


def other_clocks(dice: random.Random) -> list[Happening]:
    skewed = [
        Happening(0, 0.0, Kind.CLOCK, process=process, seconds=dice.choice((-1_000.0, 1_000.0)))
        for process in range(2)
    ]
    gone = Happening(MOST_STEPS, 2.0, dice.choice((Kind.CRASH, Kind.STOP)), "end", seconds=8.0)
    return [*skewed[: dice.randint(1, 2)], burst(dice, 2, SHORT_S, ("hopeless", "hopeless", "fail")), gone]


def calm(dice: random.Random) -> list[Happening]:
    moved = Happening(
        *gap(dice), dice.choice(CALM), seconds=dice.choice((0.1, 2.0)), process=dice.randrange(2)
    )
    again = Happening(*gap(dice), Kind.REBALANCE)
    first = burst(dice, dice.randint(1, 4), (*BURST_S, 6.0), OUTCOMES)
    return [first, moved, *([again] if dice.random() < 0.5 else [])]


def slow_readers(dice: random.Random) -> list[Happening]:
    """A process waits for a lease, and its requests are answered late. The holder was away, writes again, and dies."""
    begun = Happening(AGES, 0.6, Kind.SEND, messages=(Task(b"g0", 0.0, "ok"),))
    away = Happening(AGES, 3.0, Kind.PAUSE, "end", seconds=dice.uniform(4.2, 6.0), count=3)
    asked = dice.choice(("ends", "ends", "_read"))
    late = Happening(AGES, 9.0, Kind.LATE, asked, count=1 + (asked == "ends"), seconds=SLOW_S)
    gone = Happening(AGES, 4.0, Kind.CRASH, dice.choice(("end", "end", "produce")), seconds=8.0)
    return [burst(dice, 1, (30.0,), ("ok",)), begun, away, late, after(2.0 * dice.random()), gone]


def many_begun(dice: random.Random) -> list[Happening]:
    """Many messages come at once, perhaps while nothing can be written; once it can, the holder dies."""
    many = burst(dice, dice.randint(7, 10), (0.3, 0.3, 2.5), ("ok",))
    tasks = tuple(task._replace(group=None) if dice.random() < 0.7 else task for task in many.messages)
    again = dataclasses.replace(many, messages=tasks, steps=AGES, within=1.0)
    passed = [
        Happening(AGES, 2.0, Kind.REFUSED, dice.choice(("produce", "end")), count=dice.randint(1, 3))
        if dice.random() < 0.5
        else after(2.0, "end")
        for _ in range(dice.randrange(3))
    ]
    died = Happening(AGES, 5.0, Kind.CRASH, "end", seconds=0.5)
    return [burst(dice, 1, (0.0,), ("ok",)), again, *passed, died]


def eaten(dice: random.Random) -> list[Happening]:
    """Retention deletes unread messages while a long message runs; members come and go."""
    lasting = dice.choice((0.0, 2.5, LONG_S, LONG_S))
    # One handler must be able to finish them all in the time of a world.
    first = dataclasses.replace(
        burst(dice, dice.randint(1, 4 if lasting < LONG_S else 2), (lasting,), ("ok",))
    )
    then = dataclasses.replace(
        burst(dice, dice.randint(2, 6), SHORT_S, ("ok",)), within=0.5, steps=MOST_STEPS
    )
    gone = Happening(dice.choice((0, 0, 3, 10)), 0.5, Kind.EATEN)
    moved = [Happening(MOST_STEPS, 9.0 * dice.random(), Kind.REBALANCE) for _ in range(dice.randrange(4))]
    return [first, then, gone, *moved]


def overslept(dice: random.Random) -> list[Happening]:
    """A process is away during a long message and returns before it ends; by then another process holds the partition."""
    begun = Happening(AGES, 0.6, Kind.SEND, messages=(Task(b"g0", 0.0, "ok"),))
    away = Happening(AGES, 3.0, Kind.PAUSE, dice.choice(("end", "produce")), seconds=dice.uniform(7.0, 12.0))
    return [burst(dice, 1, (30.0,), ("ok",)), begun, away]


def late(dice: random.Random) -> list[Happening]:
    """Writes follow one another, and late requests of one arrive in the midst of the next; perhaps another process writes by then."""
    several = [
        dataclasses.replace(burst(dice, dice.randint(1, 2), (0.0, 0.02, 0.5), ("ok",)), steps=MOST_STEPS, within=dice.random())
        for _ in range(dice.randint(2, 4))
    ]  # fmt: skip
    several.insert(dice.randint(0, 2), belated(dice))
    if dice.random() < 0.5:
        kind = dice.choice((Kind.CRASH, Kind.REBALANCE, Kind.PAUSE, Kind.STOP))
        gone = Happening(
            MOST_STEPS, 2.0, kind, dice.choice(("", "", *AWAY_AT)), process=dice.randrange(2), seconds=dice.choice((0.5, 5.0))
        )  # fmt: skip
        several.insert(dice.randint(1, len(several)), gone)
    return several


def recreated(dice: random.Random) -> list[Happening]:
    """The topic is deleted and created again, with more messages than before or fewer; members come and go."""
    first = burst(dice, dice.randint(1, 5), BURST_S, ("ok", "ok", "ok", "fail", "reject"))
    again = Happening(
        MOST_STEPS,
        dice.choice((0.2, 1.0, 3.0)) * dice.random(),
        Kind.RECREATED,
        dice.choice(("", "", *AWAY_AT)),
    )
    several = [
        dataclasses.replace(burst(dice, dice.randint(1, 5), SHORT_S, ("ok", "ok", "ok", "fail")), steps=MOST_STEPS, within=dice.random())
        for _ in range(dice.randint(1, 2))
    ]  # fmt: skip
    row = [first, again, *several]
    if dice.random() < 0.6:
        kind = dice.choice((Kind.CRASH, Kind.REBALANCE, Kind.PAUSE, Kind.STOP))
        gone = Happening(
            MOST_STEPS, 2.0 * dice.random(), kind, dice.choice(("", *AWAY_AT)), process=dice.randrange(2), seconds=dice.choice((0.5, 5.0))
        )  # fmt: skip
        row.insert(dice.randint(1, len(row)), gone)
    return row


def tail(dice: random.Random) -> list[Happening]:
    """All processes are away while the topic loses its last messages and gets others."""
    died = [
        Happening(
            MOST_STEPS,
            dice.choice((0.3, 2.0)),
            Kind.CRASH,
            dice.choice(("", *AWAY_AT)),
            process=0,
            seconds=8.0,
        ),
        *(Happening(0, 0.0, Kind.CRASH, process=index, seconds=dice.uniform(5.0, 8.0)) for index in range(2)),
    ]
    then = [
        dataclasses.replace(burst(dice, dice.randint(1, 4), SHORT_S, ("ok", "fail")), within=0.5)
        for _ in range(2)
    ]
    return [
        burst(dice, dice.randint(1, 4), BURST_S, ("ok",)),
        *died,
        then[0],
        Happening(0, 0.0, Kind.TAIL),
        then[1],
    ]


THEMES: Final[Mapping[Theme, int]] = {
    taken_over: 8, stopped: 1, killers: 1, sick: 1, refused_letters: 1, other_clocks: 1, calm: 3, slow_readers: 3, many_begun: 1, eaten: 2,
    overslept: 1, late: 4, recreated: 3, tail: 1,
}  # fmt: skip
FIXED: Final[Mapping[Theme, Mapping[str, Any]]] = {
    slow_readers: LONG,
    many_begun: {"partitions": 1},
    eaten: {"partitions": 1, "handler_timeout": 0.0},
    overslept: LONG,
    tail: {"partitions": 1},
}
"""Options that are fixed for themes whose happenings name their partition."""
