"""What messages in a world of consumers are."""

from typing import Final, NamedTuple

GROUPS: Final = 3
OUTCOMES: Final = ("ok",) * 12 + ("fail", "fail", "release", "retry", "reject", "hopeless", "stubborn")


class Task(NamedTuple):
    """A message: its group, how long a handler has it, and what comes of that."""

    group: bytes | None
    seconds: float
    outcome: str

    def __str__(self) -> str:
        group = "-" if self.group is None else self.group.decode()
        return f"{self.outcome} {self.seconds:g}s@{group}"
