"""By what right a partition is worked on, and what is to be done about it next. Pure: events in, the next step out.

Each assignment of the consumer group gives a right; it is named by an object that is told apart by identity. What was opened under
an earlier one stays open over a rebalance, and goes on once membership in the new generation is confirmed: whoever owned the
partition in between has fenced its transactional producer, so that what we write next would be refused, and what is known here is
what was committed last. Nothing but a transaction that was begun under a right goes on when that right is gone.
"""

import math
from enum import StrEnum
from typing import Generic, TypeVar

Right = TypeVar("Right")


class Step(StrEnum):
    """What is to be done next."""

    OPEN = "open"
    """Go through the order of opening, from its beginning."""
    REGAIN = "regain"
    """Have it confirmed that the present right holds, then go on with what is open."""
    WORK = "work"
    """Take what came, and write."""
    REST = "rest"
    """Wait until :attr:`Tenure.rests_until`: something was refused or away."""
    STAND = "stand"
    """Begin nothing. What is open stays open until the group has decided."""
    END = "end"
    """Give up what is open; nothing follows."""


class Tenure(Generic[Right]):
    """Of one partition, in one process."""

    def __init__(self) -> None:
        self.right: Right | None = None
        """Under which something may be begun now; None = none."""
        self.attempts = 0
        """That have failed since something succeeded, or the right is new."""
        self.rests_until = -math.inf
        self._held_by: Right | None = None
        """Under which what is open was confirmed last; None = nothing is open."""
        self._ended = False

    @property
    def open(self) -> bool:
        """Whether something is open, under whatever right."""
        return self._held_by is not None

    def step(self, now: float) -> Step:
        """What is to be done at this time of a monotonic clock, in seconds."""
        if self._ended:
            return Step.END
        if self.right is None:
            return Step.STAND
        if now < self.rests_until:
            return Step.REST
        if self._held_by is None:
            return Step.OPEN
        return Step.WORK if self._held_by is self.right else Step.REGAIN

    def require_right(self) -> Right:
        """The present right, where a step needs one."""
        if self.right is None:
            raise AssertionError("there is no right to it")
        return self.right

    def assigned(self, right: Right) -> None:
        """The group gives us the partition. What rests is tried at once."""
        self.right, self.attempts, self.rests_until, self._ended = right, 0, -math.inf, False

    def revoked(self) -> None:
        """A rebalance has begun, or we no longer are a member: nothing more is begun until the group has decided."""
        self.right = None

    def ended(self) -> None:
        """It went to somebody else, or the process ends."""
        self._ended = True

    def confirmed(self, right: Right) -> None:
        """Opened, or regained, under this right; it may be gone by now."""
        self._held_by = right

    def succeeded(self) -> None:
        """Something was written."""
        self.attempts = 0

    def failed(self, until: float, *, keeps: bool = False) -> None:
        """It did not go well: rest until then. ``keeps``: what is open is sound; else it is given up, and opened anew."""
        self.attempts += 1
        self.rests_until = until
        if not keeps:
            self._held_by = None
