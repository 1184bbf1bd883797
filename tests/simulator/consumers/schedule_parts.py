"""Building blocks of small schedules of consumers."""

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.simulator.schedules import Happening, Kind

GROUPS: Final = 3
OUTCOMES: Final = ("ok",) * 12 + ("fail", "fail", "release", "retry", "reject", "hopeless", "stubborn")
BURST_S: Final = (0.0, 0.02, 0.5, 0.5, 2.5)
"""Seconds that handlers take while a process is away: when it returns, something must be left to begin."""
SHORT_S: Final = (0.0,) * 4 + (0.02, 0.3, 0.3)
SLOW_S: Final = 6.0
LONG: Final = {"partitions": 1, "handler_timeout": 0.0, "drain_timeout": 10.0}
Theme = Callable[[random.Random], list[Happening]]
AGES: Final = 10_000


class Task(NamedTuple):
    """A message: its group, the time that a handler takes, and the outcome."""

    group: bytes | None
    seconds: float
    outcome: str

    def __str__(self) -> str:
        group = "-" if self.group is None else self.group.decode()
        return f"{self.outcome} {self.seconds:g}s@{group}"


def burst(
    dice: random.Random, count: int, seconds: tuple[float, ...], outcomes: tuple[str, ...]
) -> Happening:
    tasks = tuple(
        Task(
            None if dice.random() < 0.1 else b"g%d" % dice.randrange(GROUPS),
            dice.choice(seconds),
            dice.choice(outcomes),
        )
        for _ in range(count)
    )
    return Happening(0, 0.0, Kind.SEND, messages=tasks)


def after(seconds: float, at: str = "") -> Happening:
    return Happening(AGES, seconds, Kind.CLOCK, at)
