"""Attempts at messages that may have ended their process: those that were with a handler when it died."""

import asyncio
from collections.abc import Iterator
from typing import Final

from ringfence_client.turns import Turn

ISOLATION_S: Final = 5.0
"""A last attempt that has not ended the process by then hangs, or takes long. Others begin beside it."""


class Suspects:
    """The suspects of one consumer. A last attempt begins beside no other suspect, so that nothing becomes a dead letter for another's sake.

    Also beside none of which fewer deaths are known: the first may have come before the attempt was written. Isolation ends after
    :data:`ISOLATION_S`, because a hang is not a crash. A last attempt that begins beside one that has outlived its isolation is not counted
    before it ends: if the process dies, the other one is to blame.
    """

    def __init__(self, concurrency: int) -> None:
        """``concurrency``: handlers; last attempts that do not end leave one of them to others."""
        self._slots = max(1, concurrency - 1)
        self._alone: dict[asyncio.Future[None], bool] = {}
        """Each done when the attempt is over, or its isolation; whether it is a last one."""
        self._unended: dict[asyncio.Future[None], str] = {}
        """Last attempts that go on without isolation, each done when it is over, and its message."""
        self._waiting: set[Turn] = set()

    def begin(self, turn: Turn, *, last: bool) -> "asyncio.Future[None] | None":
        """Begin an attempt, or return what must be over first."""
        first = self._first_over(last=last)
        if first is not None:
            self._waiting.add(turn)
            return first
        self._waiting.discard(turn)
        trial = turn.trial = asyncio.get_running_loop().create_future()
        turn.counted = not (last and self._unended)
        if turn.counted:
            self._isolate(turn, trial, last=last)
        else:
            self._go_on(turn, trial)
        return None

    def faults(self) -> Iterator[str]:
        """Yield why messages wait now for a last attempt; nothing while none does."""
        self._waiting = {each for each in self._waiting if each.offsets}
        waiting = sum(not each.held.draining for each in self._waiting)
        if waiting and self._unended:
            yield (
                f"{waiting} messages that ran when their consumer died wait for last attempts that do not end: {', '.join(self._unended.values())}; "
                "all other groups go on: 'ringfence groups release' ends such a run"
            )
        elif waiting:
            yield f"{waiting} messages wait for at most {ISOLATION_S:g} s: a message in its last attempt runs alone after a crash"

    def _first_over(self, *, last: bool) -> "asyncio.Future[None] | None":
        for other, is_last in self._alone.items():
            if last or is_last:
                return other
        if last and len(self._unended) >= self._slots:
            return next(iter(self._unended))
        return None

    def _isolate(self, turn: Turn, trial: "asyncio.Future[None]", *, last: bool) -> None:
        loop = asyncio.get_running_loop()
        alone: asyncio.Future[None] = loop.create_future()
        self._alone[alone] = last

        def over() -> None:
            timer.cancel()
            if self._alone.pop(alone, None) is not None:
                alone.set_result(None)

        def outlived() -> None:
            if last:
                self._go_on(turn, trial)
            over()

        timer = loop.call_later(ISOLATION_S, outlived)
        trial.add_done_callback(lambda _: over())

    def _go_on(self, turn: Turn, trial: "asyncio.Future[None]") -> None:
        self._unended[trial] = f"{turn.held}/{turn.offsets[0]}"
        trial.add_done_callback(self._unended.pop)
