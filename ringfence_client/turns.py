"""Turns: what a handler holds, and those that rest without one."""

import asyncio
from collections import deque
from collections.abc import Callable

from ringfence_client.claimed import Claimed


class Turn:
    """What one handler holds of one group."""

    __slots__ = ("claimed", "name", "offsets")

    def __init__(self, claimed: Claimed, name: str) -> None:
        self.claimed = claimed
        self.name = name
        self.offsets: deque[int] = deque()

    def put_back(self) -> None:
        """What was not begun, or will not be tried again here."""
        self.offsets.clear()
        if not self.claimed.window.closed:
            self.claimed.window.put_back(self)

    def __repr__(self) -> str:
        return self.name


class RestingTurns:
    """Turns that keep their groups while no handler runs: for a while, then due."""

    def __init__(self, wake: Callable[[int], None]) -> None:
        """``wake`` is told how many messages became available."""
        self._wake = wake
        self._due: deque[Turn] = deque()
        self._held: list[Turn] = []
        """Due too, but of partitions of which nothing is handed out now."""
        self._timers: dict[Turn, asyncio.TimerHandle] = {}

    def next(self) -> Turn | None:
        """One that has rested."""
        return self._due.popleft() if self._due else None

    def due(self, turn: Turn) -> None:
        """It goes on as soon as a handler is free, and its partition is not suspended."""
        if turn.claimed.draining:
            self._held.append(turn)
        else:
            self._due.append(turn)
            self._wake(1)

    def rest(self, turn: Turn, delay: float, *, release: bool) -> None:
        """For so many seconds; then it goes on, or all that it holds is put back."""

        def over() -> None:
            del self._timers[turn]
            if release:
                count = len(turn.offsets)
                turn.put_back()
                self._wake(count)
            else:
                self.due(turn)

        self._timers[turn] = asyncio.get_running_loop().call_later(delay, over)
        if turn.claimed.draining:
            turn.claimed.window.rest(turn.offsets)

    def __contains__(self, turn: Turn) -> bool:
        """Whether it rests."""
        return turn in self._timers

    def suspend(self, claimed: Claimed) -> None:
        """Those of this partition go on resting, and none goes on until :meth:`resume`."""
        self._held += (each for each in self._due if each.claimed is claimed)
        self._due = deque(each for each in self._due if each.claimed is not claimed)
        for turn in (*self._held, *self._timers):
            if turn.claimed is claimed:
                claimed.window.rest(turn.offsets)

    def resume(self) -> None:
        """Those of partitions that are not suspended any more go on when they have rested."""
        held, self._held = self._held, []
        for turn in held:
            self.due(turn)

    def end(self, claimed: Claimed) -> None:
        """Those of this partition put back what they hold; it is suspended."""
        for turn in [each for each in (*self._held, *self._timers) if each.claimed is claimed]:
            if (timer := self._timers.pop(turn, None)) is not None:
                timer.cancel()
            turn.put_back()
        self._held = [each for each in self._held if each.claimed is not claimed]

    def skip(self, claimed: Claimed, group: bytes) -> bool:
        """Drop the first message of the turn of this group that rests; whether there is one."""
        for turn in list(self._timers):
            if turn.claimed is claimed and claimed.window.group(turn.offsets[0]) == group:
                self._timers.pop(turn).cancel()
                claimed.window.finish(turn, turn.offsets.popleft(), reject=True)
                if turn.offsets:
                    self.due(turn)
                else:
                    self._wake(1)
                return True
        return False
