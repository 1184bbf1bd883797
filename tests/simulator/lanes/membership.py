"""What lanes must have asked of their group before they fence, and again before they write: DESIGN's order of opening, as seen from outside."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from agents.lane.lane import Lane


class Rights:
    """Of one process. An opening is one task: what is confirmed in it is known by that."""

    def __init__(self) -> None:
        self.confirmed: set[asyncio.Task[Any] | None] = set()
        """In which membership was confirmed since the last fence in it."""
        self.violations: list[str] = []
        self.decided: Callable[[int], float] | None = None
        """How many IDs the changelog of a lane knows, by all transactions that are decided."""

    def begin(self) -> None:
        """A new life: nothing of the former one runs any more."""
        self.confirmed.clear()

    def confirm(self) -> None:
        self.confirmed.add(asyncio.current_task())

    def fence(self, transactional_id: str) -> "asyncio.Task[Any] | None":
        """Somebody is about to be fenced; the task in which membership must be confirmed again."""
        task = asyncio.current_task()
        if task not in self.confirmed:
            self.violations.append(f"UNCONFIRMED fence of {transactional_id}")
        self.confirmed.discard(task)
        return task

    def write(
        self, transactional_id: str, opening: "asyncio.Task[Any] | None", lanes: Iterable[Lane]
    ) -> None:
        """A transaction begins behind that fence; of the lanes, one has that ID."""
        for lane in lanes:
            right: Any = lane._tenure.right
            if (
                lane.opening._transactional_id == transactional_id
                and right is not None
                and not right.confirmed
            ):
                self.violations.append(f"UNCONFIRMED transaction of {transactional_id} after a rebalance")
        if opening not in self.confirmed:
            self.violations.append(f"UNCONFIRMED transaction of {transactional_id}")

    def store(self, lane: str, head: int) -> None:
        """A lane has written its state to disk, which never leads what is committed."""
        if self.decided is not None and (known := self.decided(int(lane.rpartition("-")[2]))) < head:
            self.violations.append(f"LED {lane}: its store knows {head} IDs, its changelog {known}")
