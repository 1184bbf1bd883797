"""Turns: what a handler holds, and those that keep their groups without one."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from ringfence_client.partition.partition import HeldPartition

ASIDE_S: Final = 1.0
"""A message that rests for so long may be read again from the log afterwards, if others need its room."""


class Turn:
    """What one handler holds of one group. The ledger's consumer is the turn and not the handler, which may leave it."""

    __slots__ = (
        "attempt",
        "counted",
        "cut_short",
        "given_up",
        "held",
        "is_retry",
        "name",
        "offsets",
        "run",
        "trial",
    )

    def __init__(self, held: HeldPartition, name: str) -> None:
        self.held = held
        self.name = name
        self.offsets: list[int] = []
        """In order. A list, because many turns wait and hold one each: an empty deque takes ten times as much."""
        self.given_up: frozenset[int] = frozenset()
        """Those of them that an operator sends to the dead letters."""
        self.attempt = 0
        """Of its first message, where that is begun; else 0."""
        self.is_retry = False
        """Whether its first message had failed before a handler's slot was given to it."""
        self.counted = True
        """Whether its attempt counts while it goes on; otherwise it counts when it fails."""
        self.cut_short = ""
        """Why its run is being ended; empty = it is not, or by nobody who counts that as an attempt."""
        self.run: object | None = None
        """The run that its first message has now."""
        self.trial: asyncio.Future[None] | None = None
        """Done when its attempt is over; only where other messages may wait for that."""

    @property
    def has_failed(self) -> bool:
        """Whether its first message has failed before, here or with another holder of the partition."""
        return self.offsets[0] in self.held.window.failures

    def begin(self) -> None:
        """Its first message is, or is about to be, with a handler."""
        if not self.attempt:
            self.attempt = self.held.window.begin(self.offsets[0], counted=self.counted)
            self.held.writer.note()

    def count(self) -> None:
        """Count its attempt, which failed, if that was put off."""
        if not self.counted:
            self.counted = True
            self.held.window.count(self.offsets[0])

    def over(self) -> None:
        """Its attempt is, whatever came of it."""
        self.attempt, self.cut_short, self.counted = 0, "", True
        trial, self.trial = self.trial, None
        if trial is not None and not trial.done():
            trial.set_result(None)

    def take_back(self) -> None:
        """Its first message was not begun after all, or its attempt does not count."""
        if self.attempt:
            counted = self.counted
            self.over()
            self.held.window.take_back(self.offsets[0], counted=counted)
            self.held.writer.note()

    def finish(self, *, reject: bool = False) -> None:
        """Its first message is done."""
        self.over()
        self.held.window.finish(self, self.offsets.pop(0), reject=reject)
        self.held.writer.note()

    def put_back(self) -> None:
        """What was not begun, or will not be tried again here."""
        self.over()
        self.offsets.clear()
        if not self.held.window.closed:
            self.held.window.put_back(self)

    def __repr__(self) -> str:
        return self.name


class RestingTurns:
    """Turns that keep their groups while no handler has them: for a while, or until something has happened; then due."""

    def __init__(self, wake: Callable[[int], None]) -> None:
        """``wake`` is told how many messages became available."""
        self._wake = wake
        self._due: deque[Turn] = deque()
        """Those whose first message has not failed yet."""
        self._retries: deque[Turn] = deque()
        """Due too: those whose first message has."""
        self._suspended: list[Turn] = []
        """Due too, but of partitions of which nothing is handed out now."""
        self._timers: dict[Turn, asyncio.TimerHandle] = {}
        self._waits: dict[Turn, asyncio.Future[Any]] = {}
        self._kept: set[Turn] = set()
        """Of these: not put back."""

    def next_fresh(self) -> Turn | None:
        """Take a turn that is due and whose first message has not failed yet."""
        return self._due.popleft() if self._due else None

    def next_retry(self) -> Turn | None:
        """Take a turn that is due for another attempt."""
        return self._retries.popleft() if self._retries else None

    def due(self, turn: Turn) -> None:
        """It goes on as soon as a handler is free, and its partition is not suspended."""
        if turn.held.draining:
            turn.held.window.rest(turn.offsets)
            self._suspended.append(turn)
        else:
            (self._retries if turn.has_failed else self._due).append(turn)
            self._wake(1)

    def go_on(self, turn: Turn) -> None:
        """What it waited for has happened: it is due, or, where that finished its last message, others of its group are available."""
        if turn.offsets:
            self.due(turn)
        else:
            self._wake(1)

    def passed(self) -> None:
        """What kept others from being begun is over."""
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
        if delay >= ASIDE_S:
            turn.held.window.set_aside(turn.offsets[0])
        if turn.held.draining:
            turn.held.window.rest(turn.offsets)

    def until(
        self,
        turn: Turn,
        happened: "asyncio.Future[Any]",
        then: Callable[["asyncio.Future[Any]"], None],
        *,
        keeps: bool = False,
    ) -> None:
        """Until this is done, however it ends; then ``then`` says what becomes of the turn, unless it was put back or skipped.

        ``keeps``: its message is not tried again, and is not put back: its dead letter is on its way.
        """

        def over(future: "asyncio.Future[Any]") -> None:
            if self._waits.get(turn) is future:
                del self._waits[turn]
                self._kept.discard(turn)
                then(future)
            elif not future.cancelled():
                future.exception()  # nobody else asks

        self._waits[turn] = happened
        if keeps:
            self._kept.add(turn)
        happened.add_done_callback(over)
        if turn.held.draining:
            turn.held.window.rest(turn.offsets)

    def __contains__(self, turn: Turn) -> bool:
        """Whether it rests."""
        return turn in self._timers or turn in self._waits

    def waiting(self) -> Iterator[Turn]:
        """Those that wait for something to happen."""
        return iter(self._waits)

    def suspend(self, held: HeldPartition) -> None:
        """Those of this partition go on resting, and none goes on until :meth:`resume`. What was only about to begin did not."""
        self._suspended += (turn for turn in (*self._due, *self._retries) if turn.held is held)
        self._due = deque(turn for turn in self._due if turn.held is not held)
        self._retries = deque(retry for retry in self._retries if retry.held is not held)
        for turn in self._of(held):
            turn.take_back()
            held.window.rest(turn.offsets)

    def resume(self) -> None:
        """Those of partitions that are not suspended any more go on when they have rested."""
        suspended, self._suspended = self._suspended, []
        for turn in suspended:
            self.due(turn)

    def end(self, held: HeldPartition) -> None:
        """Those of this partition put back what they hold; it is suspended.

        But for those whose dead letter is on its way: if the partition comes back, the next handler would else have their message, beside or
        behind its letter.
        """
        for turn in list(self._of(held)):
            if turn in self._kept:
                continue
            self._forget(turn)
            turn.put_back()

    def skip(self, held: HeldPartition, group: bytes | None, offset: int | None = None) -> bool:
        """Drop the first message of the turn of this group that rests, or this one alone; whether there is one."""
        for turn in list(self._of(held)):
            if offset is not None and turn.offsets[0] != offset:
                continue
            if held.window.group(turn.offsets[0]) == group and held.writer.withdraw(turn.offsets[0]):
                self._forget(turn)
                turn.finish(reject=True)
                self.go_on(turn)
                return True
        return False

    def take(self, held: HeldPartition, group: bytes) -> Turn | None:
        """The turn of this group, if it rests; it is not put back."""
        for turn in list(self._of(held)):
            if held.window.group(turn.offsets[0]) == group and held.writer.withdraw(turn.offsets[0]):
                self._forget(turn)
                return turn
        return None

    def _of(self, held: HeldPartition) -> Iterator[Turn]:
        everything = (*self._timers, *self._waits, *self._due, *self._retries, *self._suspended)
        return (turn for turn in everything if turn.held is held and turn.offsets)

    def _forget(self, turn: Turn) -> None:
        if (timer := self._timers.pop(turn, None)) is not None:
            timer.cancel()
        self._waits.pop(turn, None)
        self._kept.discard(turn)
        for items in (self._due, self._retries, self._suspended):
            if turn in items:
                items.remove(turn)
