"""Checks that lanes ask their group before they fence, and again before they write: DESIGN's order of opening, as seen from outside."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from agents.lane.lane import Lane


class Rights:
    """Checks of one process. Each opening is one task, so its confirmations are known by the task."""

    def __init__(self) -> None:
        self.confirmed: set[asyncio.Task[Any] | None] = set()
        """Tasks in which membership was confirmed since their last fence."""
        self.violations: list[str] = []
        self.decided: Callable[[int], float] | None = None
        """Returns the number of IDs that a lane's changelog knows, by all decided transactions."""

    def begin(self) -> None:
        self.confirmed.clear()

    def confirm(self) -> None:
        self.confirmed.add(asyncio.current_task())

    def fence(self, transactional_id: str) -> "asyncio.Task[Any] | None":
        """Check that membership is confirmed before a fence; return the task that must confirm it again."""
        task = asyncio.current_task()
        if task not in self.confirmed:
            self.violations.append(f"UNCONFIRMED fence of {transactional_id}")
        self.confirmed.discard(task)
        return task

    def write(
        self, transactional_id: str, opening: "asyncio.Task[Any] | None", lanes: Iterable[Lane]
    ) -> None:
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
        if self.decided is not None and (known := self.decided(int(lane.rpartition("-")[2]))) < head:
            self.violations.append(f"LED {lane}: its store knows {head} IDs, its changelog {known}")
