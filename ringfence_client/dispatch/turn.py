"""Turns: the messages of one group that one handler holds."""

import asyncio
from collections.abc import Collection, Iterable
from typing import NamedTuple

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
        """Further messages of the attempt."""
        self.alone_below = 0
        """Messages below this offset failed in a batch, so each is tried alone."""
        self.has_state = False
        """Whether the state of the group is read."""
        self.state: bytes | None = None
        self.trial: asyncio.Future[None] | None = None
        """Completes when the attempt is over. Set only if other messages may wait for that."""

    @property
    def has_failed(self) -> bool:
        """Whether the first message has failed before, here or with another holder of the partition."""
        return self.offsets[0] in self.held.window.attempts.failures

    def begin_attempt(self) -> None:
        """Record that a handler has the first message, or is about to receive it."""
        if not self.attempt:
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

    def break_batch(self) -> bool:
        """End an unacknowledged batch, which counts as an attempt at none of its messages. Returns whether there was a batch."""
        if not self.batched:
            return False
        if self.offsets:
            self.alone_below = self.batched[-1] + 1
            for offset in self.batched:
                self.held.window.attempts.take_back(offset, counted=True)
        self.batched = []
        return True

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
