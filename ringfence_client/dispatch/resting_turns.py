"""Turns that keep their groups without a handler."""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from ringfence_client.dispatch.turn import Rest, Turn
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.progress.lease import LostError
from ringfence_client.window.window import End

log: Final = logging.getLogger("ringfence.consumer")

ASIDE_S: Final = 1.0
"""Shortest rest, in seconds, after which a message's record may be parked and read again."""


class RetryClock:
    """Clock of retries: that of the machine, and the timers of the event loop."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch. The next holder of the partition continues with them."""
        return round(time.time() * 1000)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Schedule a call after a number of seconds."""
        return asyncio.get_running_loop().call_later(seconds, callback)


class _Pause(NamedTuple):
    timer: asyncio.TimerHandle
    end_ms: int


class RestingTurns:
    """Turns that keep their groups without a slot: for a time, until an event, or until a slot is free."""

    def __init__(self, wake: Callable[[], None], clock: RetryClock | None = None) -> None:
        """``wake`` is called when messages become available."""
        self._wake = wake
        self.clock = clock or RetryClock()
        self._due: deque[Turn] = deque()
        """Due turns whose first message has not failed."""
        self._retries: dict[HeldPartition, deque[Turn]] = {}
        """Due turns by partition whose first message has failed; the next partition is first."""
        self._suspended: list[Turn] = []
        self._timers: dict[Turn, _Pause] = {}
        self._waits: dict[Turn, asyncio.Future[Any]] = {}
        self._kept: set[Turn] = set()
        """Waiting turns that are not put back."""
        self._preparing: dict[Turn, bool] = {}
        """Turns that wait for their partition, and whether they are for a retry."""
        self.preparing: Counter[HeldPartition] = Counter()
        """Number of turns that wait for their partition."""
        self._preparing_retries: Counter[HeldPartition] = Counter()

    @property
    def unsettled(self) -> bool:
        """Whether a turn is due, or waits for its partition's current work."""
        return bool(self._due or self._retries or self._kept or self.preparing)

    @property
    def has_retries(self) -> bool:
        """Whether a turn is due for a retry."""
        return bool(self._retries)

    def next_due(self) -> Turn | None:
        """Take a turn that is due for its first attempt."""
        return self._due.popleft() if self._due else None

    def next_retry(self, preparing_max: int) -> Turn | None:
        """Take a turn that is due for a retry, with the partitions in turn.

        ``preparing_max``: limit of retries that wait for one partition. At the limit, it offers none: thousands of failing messages, whose
        records must be read again, would keep others from being prepared.
        """
        for held in self._retries:
            if self._preparing_retries[held] < preparing_max:
                turns = self._retries.pop(held)
                turn = turns.popleft()
                if turns:
                    self._retries[held] = turns
                return turn
        return None

    def due(self, turn: Turn) -> None:
        """Let a turn continue as soon as a slot is free and its partition is not suspended."""
        if turn.held.draining:
            turn.held.window.attempts.rest(turn.offsets)
            self._suspended.append(turn)
            return
        if turn.has_failed:
            self._retries.setdefault(turn.held, deque()).append(turn)
        else:
            self._due.append(turn)
        self._wake()

    def rest(self, turn: Turn, rest: Rest) -> None:
        """Rest for a time; then continue, or put all messages back."""
        if turn.held.ending:
            return

        def over() -> None:
            del self._timers[turn]
            if rest.release:
                turn.put_back()
            self._go_on(turn)

        timer = self.clock.call_later(rest.seconds, over)
        self._timers[turn] = _Pause(timer, self.clock.now_ms() + round(rest.seconds * 1000))
        if rest.seconds >= ASIDE_S:
            turn.held.window.mark_waiting(turn.offsets[0])
        if turn.held.draining:
            turn.held.window.attempts.rest(turn.offsets)

    def wait(
        self, turn: Turn, happened: "asyncio.Future[Any]", *, keeps: bool = False, prepares: bool = False
    ) -> None:
        """Keep the group until the future completes, and then for its result (:class:`Rest` or None).

        The turn ends if the future fails with :class:`LostError`. The future may finish the first message. A task is cancelled if the turn is
        taken out before. ``keeps``: the message is neither tried again nor put back, because its dead letter is being written.
        ``prepares``: the partition must do this before the message can start.
        """
        self._waits[turn] = happened
        if keeps:
            self._kept.add(turn)
        if prepares:
            self._preparing[turn] = turn.has_failed
            self.preparing[turn.held] += 1
            self._preparing_retries[turn.held] += turn.has_failed
        happened.add_done_callback(lambda future: self._happened(turn, future))
        if turn.held.draining:
            turn.held.window.attempts.rest(turn.offsets)

    def _happened(self, turn: Turn, future: "asyncio.Future[Any]") -> None:
        error = None if future.cancelled() else future.exception()
        if self._waits.get(turn) is not future:
            return
        self._forget_wait(turn)
        if future.cancelled() or isinstance(error, LostError) or turn.held.window.closed:
            turn.over()  # the partition is lost, but messages of other partitions may wait for this attempt
            return
        if error is not None:
            log.error("%s: internal error, please report", turn.held, exc_info=error)
            turn.held.fail()
        rest = None if error is not None else future.result()
        if rest is None:
            self._go_on(turn)
        else:
            self.rest(turn, rest)

    def _go_on(self, turn: Turn) -> None:
        if turn.offsets:
            self.due(turn)
        else:
            self._wake()  # other messages of its group are available

    def __contains__(self, turn: Turn) -> bool:
        """Return whether a turn rests or waits."""
        return turn in self._timers or turn in self._waits

    def ends_ms(self) -> dict[tuple[HeldPartition, int], int]:
        """Return the ends of rests, by partition and offset of the next message."""
        return {
            (turn.held, turn.offsets[0]): pause.end_ms for turn, pause in self._timers.items() if turn.offsets
        }

    def suspend(self, held: HeldPartition) -> None:
        """Stop the turns of a partition until :meth:`resume`. Attempts that are about to start do not start."""
        self._suspended += (turn for turn in self._due if turn.held is held)
        self._suspended += self._retries.pop(held, ())
        self._due = deque(turn for turn in self._due if turn.held is not held)
        for turn in self._of(held):
            turn.take_back()
            held.window.attempts.rest(turn.offsets)

    def resume(self) -> None:
        """Let turns of resumed partitions continue."""
        suspended, self._suspended = self._suspended, []
        for turn in suspended:
            self.due(turn)

    def end(self, held: HeldPartition) -> None:
        """Put back the messages of a suspended partition, unless their dead letters are being written.

        If the partition returned, the next handler would otherwise receive their message together with its letter.
        """
        for turn in list(self._of(held)):
            if turn not in self._kept:
                self._forget(turn)
                turn.put_back()

    def skip(self, held: HeldPartition, group: bytes | None, offset: int | None = None) -> bool:
        """Drop the first message of this group's resting turn, optionally only at ``offset``; return whether it was dropped."""
        turn = self.withdraw(held, group, offset)
        if turn is None:
            return False
        turn.finish(End.REJECT)
        self._go_on(turn)
        return True

    def withdraw(self, held: HeldPartition, group: bytes | None, offset: int | None = None) -> Turn | None:
        """Remove the turn of a group or of a first message, unless its dead letter may be written."""
        for turn in list(self._of(held)):
            first = turn.offsets[0]
            is_meant = held.window.group_of(first) == group and offset in {None, first}
            if is_meant and held.writer.withdraw(first):
                self._forget(turn)
                return turn
        return None

    def _of(self, held: HeldPartition) -> Iterator[Turn]:
        retries = self._retries.get(held, ())
        everything = (*self._timers, *self._waits, *self._due, *retries, *self._suspended)
        return (turn for turn in everything if turn.held is held and turn.offsets)

    def _forget_wait(self, turn: Turn) -> None:
        if isinstance(happened := self._waits.pop(turn, None), asyncio.Task):
            happened.cancel()
        self._kept.discard(turn)
        if (retry := self._preparing.pop(turn, None)) is not None:
            self.preparing[turn.held] -= 1
            self._preparing_retries[turn.held] -= retry
            if not self.preparing[turn.held]:
                del self.preparing[turn.held], self._preparing_retries[turn.held]

    def _forget(self, turn: Turn) -> None:
        if (pause := self._timers.pop(turn, None)) is not None:
            pause.timer.cancel()
        self._forget_wait(turn)
        retries = self._retries.get(turn.held, deque())
        for items in (self._due, self._suspended, retries):
            if turn in items:
                items.remove(turn)
        if not retries:
            self._retries.pop(turn.held, None)
