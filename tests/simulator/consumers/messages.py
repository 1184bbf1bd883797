"""Messages in a world of consumers."""

from typing import Final, NamedTuple

GROUPS: Final = 3
OUTCOMES: Final = ("ok",) * 12 + ("fail", "fail", "release", "retry", "reject", "hopeless", "stubborn")


class Task(NamedTuple):
    """A message: its group, the time that a handler takes, and the outcome."""

    group: bytes | None
    seconds: float
    outcome: str

    def __str__(self) -> str:
        group = "-" if self.group is None else self.group.decode()
        return f"{self.outcome} {self.seconds:g}s@{group}"
