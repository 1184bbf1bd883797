"""Small schedules of consumers about rare events that are cheap to provoke, generated with separate dice."""

import dataclasses
import random
from collections.abc import Mapping
from typing import Any, Final

from tests.simulator.consumers.schedule_parts import AGES, GROUPS, LONG, SLOW_S, Task, Theme, after, burst
from tests.simulator.schedules import Happening, Kind


def killer_beside(dice: random.Random) -> list[Happening]:
    """A message ends its process at once, beside others that have run for a while. Its death is known one time less than theirs."""
    beside = burst(dice, dice.randint(1, 2), (0.5, 0.5, 2.5), ("ok",))
    deadly = Task(b"g%d" % dice.randrange(GROUPS), 0.0, "kill")
    return [beside, Happening(AGES, dice.uniform(0.3, 1.5), Kind.SEND, messages=(deadly,))]


def as_its_time_is_up(dice: random.Random) -> list[Happening]:
    """A process that ends in order is paused when its time to drain is up, and when its message is handled."""
    process = dice.randrange(2)
    stop = Happening(AGES, dice.uniform(0.3, 0.7), Kind.STOP, process=process, seconds=8.0)
    away = Happening(
        AGES, dice.uniform(0.8, 1.2), Kind.PAUSE, process=process, seconds=dice.uniform(1.7, 2.3)
    )
    return [burst(dice, 1, (2.6, 3.0), ("ok",)), stop, away]


def parked(dice: random.Random) -> list[Happening]:
    """A group has more messages than are kept. Before they are read again, another topic of another group takes its place."""
    first = tuple(Task(b"g0", dice.choice((0.1, 0.3, 0.5)), "ok") for _ in range(dice.randint(6, 9)))
    others = tuple(Task(b"g2", 0.02, "ok") for _ in range(4))
    then = tuple(Task(b"g1", dice.choice((0.1, 0.3, 0.5)), "ok") for _ in range(16))
    return [
        Happening(0, 0.0, Kind.SEND, messages=(*first, *others)),
        Happening(AGES, dice.uniform(0.3, 2.0), Kind.RECREATED),
        Happening(0, 0.0, Kind.SEND, messages=then),
    ]


def queued(dice: random.Random) -> list[Happening]:
    """A process ends in order and cannot write for a while; the next holder waits for a write of its own, and the first writes again."""
    both = [dataclasses.replace(burst(dice, 1, (30.0,), ("ok",)), partition=number) for number in (0, 1)]
    ends = Happening(AGES, 1.0, Kind.STOP, process=dice.randrange(2), seconds=20.0)
    late = [Happening(AGES, 1.5, Kind.LATE, "end", count=1, seconds=value) for value in (SLOW_S, 20.0)]
    between = [after(dice.uniform(0.8, 1.0)), after(dice.uniform(1.2, 2.2))]
    return [after(1.5), *both, ends, between[0], late[0], between[1], late[1]]


def taken_back(dice: random.Random) -> list[Happening]:
    """A holder that could not write asks who holds its lease; the group rebalances meanwhile, or has removed the holder."""
    tasks = tuple(Task(b"g%d" % number, value, "ok") for number, value in enumerate((6.0, 0.0, 0.5, 1.0)))
    several = Happening(0, 0.0, Kind.SEND, messages=tasks[: dice.randint(2, 4)])
    refused = Happening(AGES, 3.0, Kind.REFUSED, dice.choice(("end", "produce")), count=1)
    if dice.random() < 0.5:
        late = Happening(AGES, 2.0, Kind.LATE, "confirm", count=2, seconds=4.0)
        shared = Happening(AGES, dice.random(), Kind.REBALANCE)
        return [after(1.5), several, refused, late, shared]
    away = Happening(AGES, 2.0, Kind.PAUSE, "heartbeat", seconds=dice.uniform(4.2, 5.5), count=1)
    return [after(1.5), several, away, after(dice.uniform(4.2, 5.2)), refused]


def letter_under_way(dice: random.Random) -> list[Happening]:
    """A member joins and leaves again, while dead letters are refused and a long handler keeps the partition."""
    outcomes = ("ok", *(dice.choice(("reject", "hopeless")) for _ in range(2)))
    tasks = tuple(
        Task(b"g%d" % number, 0.0 if number else 6.0, outcome) for number, outcome in enumerate(outcomes)
    )
    return [
        Happening(0, 0.0, Kind.STOP, process=1, seconds=dice.uniform(1.0, 2.0)),
        Happening(AGES, 0.5, Kind.LETTERS, seconds=dice.uniform(5.0, 8.0)),
        Happening(0, 0.0, Kind.SEND, partition=dice.randrange(2), messages=tasks),
        Happening(AGES, dice.uniform(1.5, 3.5), Kind.STOP, process=1, seconds=dice.uniform(3.0, 6.0)),
    ]


APART: Final[Mapping[Theme, Mapping[str, Any]]] = {
    killer_beside: {"partitions": 1, "handler_timeout": 0.0},
    as_its_time_is_up: {"partitions": 1, "lease_timeout": 5.0, "drain_timeout": 2.0, "handler_timeout": 0.0},
    parked: {"partitions": 1, "records_max": 3, "concurrency": 3, "prefetch": 3},
    queued: {**LONG, "partitions": 2, "lease_timeout": 3.0},
    taken_back: {**LONG, "concurrency": 3, "lease_timeout": 20.0, "lease_idle": 20.0},
    letter_under_way: {**LONG, "partitions": 2, "concurrency": 3, "lease_timeout": 5.0, "max_attempts": 1},
}
"""Options that are fixed for each theme; each happening names its partition."""
