"""State machine of one partition's ownership. Pure: events in, the next step out.

Lanes and group consumers use it. Each assignment of the consumer group gives a right: an object that is compared by identity. A partition
that was opened under an earlier right stays open over a rebalance, and resumes once the present right is confirmed. If another process
owned the partition in between, it has fenced our transactional producer. Our next write would then be refused, and our state is that of the
last commit. When a right is gone, only work that was begun under it continues.

An open partition has one of three ends. It is *drained* and *closed* if it went to another process, or is not sound any more. Running work
ends, and nobody has to guess how far it came. Until it is drained it may come back, and then it resumes. It is *dropped* if it was refused:
another process owns it by now, or may own it.
"""

import math
from enum import StrEnum
from typing import Generic, TypeVar

AssignmentT = TypeVar("AssignmentT")


class NotOwnerError(Exception):
    """The group does not confirm the right that a step needs: it will decide again."""


class Action(StrEnum):
    """Next step for a partition."""

    OPEN = "open"
    """Go through the order of opening, from its beginning."""
    REGAIN = "regain"
    """Have it confirmed that the present right holds, then go on with what is open."""
    WORK = "work"
    """Take what came, and write."""
    REST = "rest"
    """Wait until :attr:`PartitionState.rests_until`: something was refused or away."""
    STAND = "stand"
    """Begin nothing. An open partition stays open until the group has decided."""
    DRAIN = "drain"
    """Begin nothing more, and let running work end. A sound partition may come back meanwhile."""
    CLOSE = "close"
    """Say how far it came, and give it up: nothing of it comes back."""
    DROP = "drop"
    """Give it up at once, and say nothing: it is somebody else's."""
    END = "end"
    """Nothing is open, and nothing follows."""


class PartitionState(Generic[AssignmentT]):
    """Ownership of one partition in one process."""

    def __init__(self) -> None:
        self.right: AssignmentT | None = None
        """Under which something may be begun now; None = none."""
        self.attempts = 0
        """That have failed since something succeeded, or the right is new."""
        self.rests_until = -math.inf
        self._held_by: AssignmentT | None = None
        """Under which what is open was confirmed last; None = nothing is open."""
        self._way_out: Action | None = None
        """How what is open is given up, whatever the group says; None = it is not."""
        self._ended = False

    def step(self, now: float) -> Action:
        """Return the next step at this time of a monotonic clock, in seconds."""
        if self._held_by is not None and (self._way_out is not None or self._ended):
            return self._way_out or Action.DRAIN
        if self._ended:
            return Action.END
        if self.right is None:
            return Action.STAND
        if now < self.rests_until:
            return Action.REST
        if self._held_by is None:
            return Action.OPEN
        return Action.WORK if self._held_by is self.right else Action.REGAIN

    @property
    def latest(self) -> AssignmentT | None:
        """The present right; without one, the right under which the open partition was confirmed last."""
        return self._held_by if self.right is None else self.right

    def assigned(self, right: AssignmentT) -> None:
        """Note that the group gives us the partition. A rest ends at once."""
        self.right, self.attempts, self.rests_until, self._ended = right, 0, -math.inf, False

    def revoked(self) -> None:
        """Begin nothing more until the group has decided: a rebalance has begun, or we are not a member any more."""
        self.right = None

    def ended(self) -> None:
        """Note that it went to somebody else, or that the process ends."""
        self.right, self._ended = None, True

    def confirmed(self, right: AssignmentT) -> None:
        """Note that it was opened or resumed under this assignment, which may be gone by now."""
        self._held_by = right

    def succeeded(self) -> None:
        """Note that something was written."""
        self.attempts = 0

    def failed(self, until: float, *, keeps: bool = False) -> None:
        """Note a failure and rest until then. ``keeps``: the open partition is sound; else it is dropped, and opened again."""
        self.attempts += 1
        self.rests_until = until
        if not keeps and self._held_by is not None:
            self._way_out = Action.DROP

    def broke(self, until: float) -> None:
        """Note that the open partition is ours and not sound: it is drained, closed, and opened again, not before ``until``."""
        self.failed(until, keeps=True)
        self._way_out = self._way_out or Action.DRAIN

    def drained(self) -> None:
        """Nothing of it runs any more, or may: it cannot come back."""
        self._way_out = Action.CLOSE

    def given_up(self) -> None:
        """Nothing is open."""
        self._held_by = self._way_out = None
