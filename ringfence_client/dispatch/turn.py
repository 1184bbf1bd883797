"""Turns: what a handler holds of a group, and those that keep their groups without a handler."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from ringfence_client.dispatch.retry_clock import RetryClock, Timer
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.progress.lease import LostError
from ringfence_client.window.window import End

log: Final = logging.getLogger("ringfence.consumer")

ASIDE_S: Final = 1.0
"""A message that rests for so long may be read again from the log afterwards, if others need its room."""


class Turn:
    """What one handler holds of one group. The ledger's consumer is the turn and not the handler, which may leave it."""

    __slots__ = (
        "alone_below", "attempt", "batched", "counted", "cut_short", "given_up", "has_state", "held", "name", "offsets", "state", "trial",
    )  # fmt: skip

    def __init__(self, held: HeldPartition, name: str) -> None:
        self.held = held
        self.name = name
        self.offsets: list[int] = []
        """In order. A list, because many turns wait and hold one each: an empty deque takes ten times as much."""
        self.given_up: frozenset[int] = frozenset()
        """Those of them that an operator sends to the dead letters."""
        self.attempt = 0
        """Of its first message, where that is begun; else 0."""
        self.counted = True
        """Whether its attempt counts while it goes on; otherwise it counts when it fails."""
        self.cut_short = ""
        """Why its run is being ended; empty = it is not, or by nobody who counts that as an attempt."""
        self.batched: list[int] = []
        """Messages that its attempt has beside the first one."""
        self.alone_below = 0
        """Messages below it failed in a batch, so each is tried alone."""
        self.has_state = False
        """Whether the state of its group is read."""
        self.state: bytes | None = None
        self.trial: asyncio.Future[None] | None = None
        """Done when its attempt is over; only where other messages may wait for that."""

    @property
    def has_failed(self) -> bool:
        """Whether its first message has failed before, here or with another holder of the partition."""
        return self.offsets[0] in self.held.window.attempts.failures

    def begin_attempt(self) -> None:
        """Note that its first message is, or is about to be, with a handler."""
        if not self.attempt:
            attempts = self.held.window.attempts
            self.attempt = attempts.begin_attempt(self.offsets[0], counted=self.counted)
            self.held.writer.note()

    def begin_batch(self, offsets: Collection[int]) -> None:
        """Note that the attempt has these messages too."""
        self.batched = list(offsets)
        for offset in self.batched:
            self.held.window.attempts.begin_attempt(offset, counted=True)

    def join_batch(self, offsets: Iterable[int]) -> None:
        """Note that a run that outlived the turn had these messages too."""
        self.batched = list(offsets)

    def break_batch(self) -> bool:
        """End an attempt at a batch that was not acknowledged: it counts for none of its messages. Returns whether it was one."""
        if not self.batched:
            return False
        if self.offsets:
            self.alone_below = self.batched[-1] + 1
            for offset in self.batched:
                self.held.window.attempts.take_back(offset, counted=True)
        self.batched = []
        return True

    def read_state(self, state: bytes | None) -> None:
        """Note the state of its group."""
        self.has_state, self.state = True, state

    def put_on_trial(self, trial: "asyncio.Future[None]", *, counted: bool) -> None:
        """Have ``trial`` done when the attempt that begins now is over."""
        self.trial, self.counted = trial, counted

    def cut(self, reason: str) -> None:
        """Note why its run is being ended."""
        self.cut_short = reason

    def give_up(self, offsets: Collection[int]) -> None:
        """Note which messages an operator sends to the dead letters."""
        self.given_up |= set(offsets)

    def count_failure(self, now_ms: int) -> None:
        """End its attempt, which failed."""
        attempts, offset = self.held.window.attempts, self.offsets[0]
        if not self.counted:
            attempts.count_attempt(offset)
        attempts.fail(offset, now_ms)
        self.over()

    def over(self) -> None:
        """End its attempt, whatever came of it."""
        self.attempt, self.cut_short, self.counted = 0, "", True
        self.has_state, self.state = False, None
        trial, self.trial = self.trial, None
        if trial is not None and not trial.done():
            trial.set_result(None)

    def take_back(self) -> None:
        """End an attempt that does not count, or was not begun after all."""
        if self.attempt:
            counted = self.counted
            self.over()
            self.held.window.attempts.take_back(self.offsets[0], counted=counted)
            self.held.writer.note()

    def finish(self, how: End) -> None:
        """End its first message, and those that its attempt has beside it."""
        self.over()
        batched, self.batched = self.batched, []
        for offset in (self.offsets[0], *batched):
            self.held.window.finish(offset, how, self)
        del self.offsets[: 1 + len(batched)]
        self.held.writer.note(1 + len(batched))

    def put_back(self) -> None:
        """Give all its messages back: they were not begun, or are not tried again here."""
        self.break_batch()
        self.over()
        self.offsets.clear()
        window = self.held.window
        if not window.closed:
            window.attempts.rest(window.ledger.close(self))

    def __repr__(self) -> str:
        return self.name


class Rest(NamedTuple):
    """How long a turn keeps its group without a handler."""

    seconds: float
    release: bool = False
    """Whether all that it holds is put back afterwards."""


class RestingTurns:
    """Turns that keep their groups without a slot: for a while, until something has happened, or until a slot is free."""

    def __init__(self, wake: Callable[[], None], clock: RetryClock | None = None) -> None:
        """``wake`` is called when messages became available."""
        self._wake = wake
        self._clock = clock or RetryClock()
        self._due: deque[Turn] = deque()
        """Those whose first message has not failed yet."""
        self._retries: dict[HeldPartition, deque[Turn]] = {}
        """Due too: those whose first message has, of each partition; the one that comes next is first."""
        self._suspended: list[Turn] = []
        """Due too, but of partitions of which nothing is handed out now."""
        self._timers: dict[Turn, Timer] = {}
        self._waits: dict[Turn, asyncio.Future[Any]] = {}
        self._kept: set[Turn] = set()
        """Those that wait and are not put back."""
        self._preparing: dict[Turn, bool] = {}
        """Those that wait for what their partition must do, and whether they are for another attempt."""
        self.preparing: Counter[HeldPartition] = Counter()
        """How many of those a partition has."""
        self._preparing_retries: Counter[HeldPartition] = Counter()
        """How many of them are for another attempt."""

    @property
    def unsettled(self) -> bool:
        """Whether a turn is due, or waits for what its partition does now."""
        return bool(self._due or self._retries or self._kept or self.preparing)

    @property
    def has_retries(self) -> bool:
        """Whether a turn is due for another attempt."""
        return bool(self._retries)

    def next_due(self) -> Turn | None:
        """Take a turn that is due for its first attempt."""
        return self._due.popleft() if self._due else None

    def next_retry(self, preparing_max: int) -> Turn | None:
        """Take a turn that is due for another attempt; partitions take turns.

        ``preparing_max``: a partition where so many retries wait for what it must do gives no more. Thousands of failing messages, whose
        records must be read again, would keep all others from being prepared.
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
        """Have it go on as soon as a slot is free, and its partition is not suspended."""
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
        """Rest for so many seconds; then go on, or put all back."""
        if turn.held.ending:
            return

        def over() -> None:
            del self._timers[turn]
            if rest.release:
                turn.put_back()
            self._go_on(turn)

        self._timers[turn] = self._clock.call_later(rest.seconds, over)
        if rest.seconds >= ASIDE_S:
            turn.held.window.set_aside(turn.offsets[0])
        if turn.held.draining:
            turn.held.window.attempts.rest(turn.offsets)

    def wait(
        self, turn: Turn, happened: "asyncio.Future[Any]", *, keeps: bool = False, prepares: bool = False
    ) -> None:
        """Keep the group until this is done, and then for as long as its result says, a :class:`Rest` or None.

        Args:
            turn: It is dropped if this ends with :class:`LostError`.
            happened: May finish the first message. A task is cancelled if the turn is taken out before.
            keeps: The message is not tried again and not put back: its dead letter is on its way.
            prepares: The partition itself must do this before the message can be begun.
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
            turn.over()  # its partition is lost, but messages of others may wait for this attempt
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
            self._wake()  # others of its group are available

    def __contains__(self, turn: Turn) -> bool:
        """Whether it rests, or waits."""
        return turn in self._timers or turn in self._waits

    def suspend(self, held: HeldPartition) -> None:
        """Let none of this partition go on until :meth:`resume`. What was only about to begin did not."""
        self._suspended += (turn for turn in self._due if turn.held is held)
        self._suspended += self._retries.pop(held, ())
        self._due = deque(turn for turn in self._due if turn.held is not held)
        for turn in self._of(held):
            turn.take_back()
            held.window.attempts.rest(turn.offsets)

    def resume(self) -> None:
        """Let those of partitions that are not suspended any more go on when they have rested."""
        suspended, self._suspended = self._suspended, []
        for turn in suspended:
            self.due(turn)

    def end(self, held: HeldPartition) -> None:
        """Put back what those of a suspended partition hold, except those whose dead letter is on its way.

        If the partition comes back, the next handler would else have their message, beside or behind its letter.
        """
        for turn in list(self._of(held)):
            if turn not in self._kept:
                self._forget(turn)
                turn.put_back()

    def skip(self, held: HeldPartition, group: bytes | None, offset: int | None = None) -> bool:
        """Drop the first message of the turn of this group that rests, or this one alone; whether there is one."""
        turn = self.withdraw(held, group, offset)
        if turn is None:
            return False
        turn.finish(End.REJECT)
        self._go_on(turn)
        return True

    def withdraw(self, held: HeldPartition, group: bytes | None, offset: int | None = None) -> Turn | None:
        """Take the turn of this group out, or the one whose first message is this, unless its dead letter may be written."""
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
        if (timer := self._timers.pop(turn, None)) is not None:
            timer.cancel()
        self._forget_wait(turn)
        retries = self._retries.get(turn.held, deque())
        for items in (self._due, self._suspended, retries):
            if turn in items:
                items.remove(turn)
        if not retries:
            self._retries.pop(turn.held, None)
