"""State machine of one partition's ownership. Pure: events in, the next step out.

Lanes and group consumers use it. Each assignment of the consumer group is an object, compared by identity (``right``). A partition that
was opened under an earlier assignment stays open during a rebalance, and resumes once the present assignment is confirmed. If another
process owned the partition in between, it fenced this process's transactional producer: the next write is refused, and the state here is
that of the last commit. After the loss of an assignment only work that was started under it continues.

An open partition ends in one of three ways. It is *drained* and *closed* if it went to another process or its state is no longer sound:
running work ends, and its position is known exactly. Until it is drained, the partition may return and resume. It is *dropped* if a
request was refused, because another process owns it or may own it.
"""

import math
from enum import StrEnum
from typing import Generic, TypeVar

AssignmentT = TypeVar("AssignmentT")


class NotOwnerError(Exception):
    """The group does not confirm the assignment that a step needs. Another one follows."""


class Action(StrEnum):
    """Next step of a partition."""

    OPEN = "open"
    """Perform all steps of the opening."""
    REGAIN = "regain"
    """Confirm the present assignment with the group, then resume the open partition."""
    WORK = "work"
    """Process new messages."""
    REST = "rest"
    """Wait until :attr:`PartitionState.rests_until`, after a refused request or an unreachable cluster."""
    STAND = "stand"
    """Start nothing. An open partition stays open until the next assignment."""
    DRAIN = "drain"
    """Start nothing, and let running work end. A sound partition may return meanwhile."""
    CLOSE = "close"
    """Write the final position and close. The partition cannot resume."""
    DROP = "drop"
    """Close at once and write nothing, because another process may own the partition."""
    END = "end"
    """Nothing is open, and no step follows."""


class PartitionState(Generic[AssignmentT]):
    """Ownership of one partition in one process."""

    def __init__(self) -> None:
        self.right: AssignmentT | None = None
        """Assignment under which work may start now; None = no work may start."""
        self.attempts = 0
        """Number of failed attempts since the last success or the last assignment."""
        self.rests_until = -math.inf
        self._held_by: AssignmentT | None = None
        """Assignment under which the open partition was confirmed last; None = it is not open."""
        self._way_out: Action | None = None
        """How the open partition is closed, independently of the group; None = it stays open."""
        self._ended = False

    def step(self, now: float) -> Action:
        """Return the next step. ``now``: time of a monotonic clock, in seconds."""
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
        """Present assignment; without one, the assignment under which the open partition was confirmed last."""
        return self._held_by if self.right is None else self.right

    def assigned(self, right: AssignmentT) -> None:
        """Record an assignment of the partition to this process. It ends a back-off."""
        self.right, self.attempts, self.rests_until, self._ended = right, 0, -math.inf, False

    def revoked(self) -> None:
        """Start nothing until the next assignment: a rebalance began, or the membership was lost."""
        self.right = None

    def ended(self) -> None:
        """Record that the partition went to another process, or that this process ends."""
        self.right, self._ended = None, True

    def confirmed(self, right: AssignmentT) -> None:
        """Record that the partition was opened or resumed under this assignment, which may be out of date."""
        self._held_by = right

    def succeeded(self) -> None:
        """Record a successful write."""
        self.attempts = 0

    def failed(self, until: float, *, keeps: bool = False) -> None:
        """Record a failure and back off until ``until``. ``keeps``: the open partition is sound; otherwise it is dropped and reopened."""
        self.attempts += 1
        self.rests_until = until
        if not keeps and self._held_by is not None:
            self._way_out = Action.DROP

    def broke(self, until: float) -> None:
        """Record that the state of the open partition is not sound: drain, close and reopen it, not before ``until``."""
        self.failed(until, keeps=True)
        self._way_out = self._way_out or Action.DRAIN

    def drained(self) -> None:
        """Record that no work of the partition runs any more: it cannot resume."""
        self._way_out = Action.CLOSE

    def given_up(self) -> None:
        """Record that the partition is not open."""
        self._held_by = self._way_out = None
