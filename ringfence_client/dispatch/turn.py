"""Turns: the messages of one group that one handler holds, and those of one call of the handler."""

import asyncio
from collections.abc import Collection, Iterable
from itertools import takewhile
from typing import Any, NamedTuple

from ringfence_client.handlers.effects import Effects
from ringfence_client.handlers.handler import HandlerRuns
from ringfence_client.handlers.message import Message, MessageFactory
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.window.window import End


class Turn:
    """The messages of one group that one handler holds. The turn is the ledger's consumer, because a handler may leave its turn."""

    __slots__ = (
        "alone_below", "attempt", "batched", "counted", "cut_short", "given_up", "has_state", "held", "name", "offsets", "state", "trial",
    )  # fmt: skip

    def __init__(self, held: HeldPartition, name: str) -> None:
        self.held = held
        self.name = name
        self.offsets: list[int] = []
        """Offsets in ascending order. Many turns wait with one offset each, and an empty deque takes ten times the memory of a list."""
        self.given_up: frozenset[int] = frozenset()
        """Messages of the turn that an operator sends to the dead letters."""
        self.attempt = 0
        """Number of the attempt at the first message; 0 = not started."""
        self.counted = True
        """Whether the attempt counts from its start; otherwise it counts when it fails."""
        self.cut_short = ""
        """Reason why the consumer ends the run as a failed attempt; empty = the run is not ended in this way."""
        self.batched: list[int] = []
        self.alone_below = 0
        """Messages below this offset failed in a batch, so each is tried alone."""
        self.has_state = False
        self.state: bytes | None = None
        self.trial: asyncio.Future[None] | None = None
        """Completes when the attempt is over. Set only if other messages may wait for that."""

    @property
    def startable(self) -> bool:
        """Whether a handler could get the first message now."""
        return bool(self.offsets) and not self.held.draining and not self.held.window.closed

    @property
    def has_failed(self) -> bool:
        """Whether the first message has failed before, here or with another holder of the partition."""
        return self.offsets[0] in self.held.window.attempts.failures

    def begin_attempt(self) -> None:
        """Record that a handler has the first message, or is about to receive it."""
        attempts = self.held.window.attempts
        self.attempt = attempts.begin_attempt(self.offsets[0], counted=self.counted)
        self.held.writer.count_changes()

    def begin_batch(self, offsets: Collection[int]) -> None:
        """Record further messages of the attempt."""
        self.batched = list(offsets)
        for offset in self.batched:
            self.held.window.attempts.begin_attempt(offset, counted=True)

    def join_batch(self, offsets: Iterable[int]) -> None:
        """Record further messages of a run that outlived the turn."""
        self.batched = list(offsets)

    def break_batch(self) -> None:
        """End an unacknowledged batch, which counts as an attempt at none of its messages."""
        if self.batched and self.offsets:
            self.alone_below = self.batched[-1] + 1
            for offset in self.batched:
                self.held.window.attempts.take_back(offset, counted=True)
        self.batched = []

    def read_state(self, state: bytes | None) -> None:
        """Set the state of the group."""
        self.has_state, self.state = True, state

    def put_on_trial(self, trial: "asyncio.Future[None]", *, counted: bool) -> None:
        """Set the future to complete when the next attempt is over."""
        self.trial, self.counted = trial, counted

    def cut(self, reason: str) -> None:
        """Set the reason why the run is being ended."""
        self.cut_short = reason

    def give_up(self, offsets: Collection[int]) -> None:
        """Add messages that an operator sends to the dead letters."""
        self.given_up |= set(offsets)

    def count_failure(self, now_ms: int) -> None:
        """End a failed attempt."""
        attempts, offset = self.held.window.attempts, self.offsets[0]
        if not self.counted:
            attempts.count_attempt(offset)
        attempts.fail(offset, now_ms)
        self.over()

    def over(self) -> None:
        """End the attempt, whatever its outcome."""
        self.attempt, self.cut_short, self.counted = 0, "", True
        self.has_state, self.state = False, None
        trial, self.trial = self.trial, None
        if trial is not None and not trial.done():
            trial.set_result(None)

    def take_back(self) -> None:
        """End an attempt that does not count, or did not start."""
        if self.attempt:
            counted = self.counted
            self.over()
            self.held.window.attempts.take_back(self.offsets[0], counted=counted)
            self.held.writer.count_changes()

    def finish(self, how: End) -> None:
        """Finish the messages of the attempt."""
        self.over()
        batched, self.batched = self.batched, []
        for offset in (self.offsets[0], *batched):
            self.held.window.finish(offset, how, self)
        del self.offsets[: 1 + len(batched)]
        self.held.writer.count_changes(1 + len(batched))

    def put_back(self) -> None:
        """Put back all messages: they were not started, or are not tried again here."""
        self.break_batch()
        self.over()
        self.offsets.clear()
        window = self.held.window
        if not window.closed:
            window.attempts.rest(window.ledger.close(self))

    def __repr__(self) -> str:
        return self.name


class Rest(NamedTuple):
    """Rest of a turn, which keeps its group without a handler."""

    seconds: float
    release: bool = False
    """Whether the turn puts back all its messages after the rest."""


def messages_of(
    turn: Turn, record: Any, factory: MessageFactory, runs: HandlerRuns, batch_max: int
) -> list[Message]:
    """Return the messages of a new attempt: the first one of the turn, and those that join it. ``batch_max``: at most 1 = none joins."""
    held, offset = turn.held, record.offset
    effects = Effects(turn.state, held.sends.states.fault)
    redriven = held.window.redrives.counts.get(offset, 0)
    first_here = held.is_first(record.key)
    first = factory.make(record, turn.attempt, held.fence, redriven, first_here=first_here, effects=effects)
    if batch_max <= 1 or len(turn.offsets) == 1 or redriven or not _may_lead(turn, offset):
        return [first]
    found = (_joining(turn, item, runs) for item in turn.offsets[1:batch_max])
    records: list[Any] = list(takewhile(lambda item: item is not None, found))
    turn.begin_batch([item.offset for item in records])
    others = (factory.make(item, 1, held.fence, first_here=first_here, effects=effects) for item in records)
    return [first, *others]


def _joining(turn: Turn, offset: int, runs: HandlerRuns) -> Any | None:
    """Return the record of a later message if it may join the batch; None if it failed, or may have ended a process."""
    window, attempts = turn.held.window, turn.held.window.attempts
    if (
        offset in attempts.counts
        or offset in attempts.failures
        or offset in turn.given_up
        or offset in window.redrives.counts
        or offset in window.redrives.blocked
        or not window.suspect_below <= offset < window.reserved
        or runs.left(turn.held.fence.log, offset) is not None
    ):
        return None
    window.cache.recall(offset)
    return window.cache.record(offset)


def _may_lead(turn: Turn, first: int) -> bool:
    """Return whether others may join the first message of a turn: it has not failed, alone or in a batch."""
    return turn.attempt == 1 and not turn.has_failed and first >= turn.alone_below and turn.trial is None
