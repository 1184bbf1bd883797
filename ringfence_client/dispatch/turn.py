"""Turns: the messages of one group that one handler holds."""

import asyncio
from collections.abc import Collection, Iterable
from typing import NamedTuple

from ringfence_client.partition.partition import HeldPartition
from ringfence_client.window.window import End


class Turn:
    """The messages of one group that one handler holds. The consumer in the ledger is the turn, because a handler may leave its turn."""

    __slots__ = (
        "alone_below", "attempt", "batched", "counted", "cut_short", "given_up", "has_state", "held", "name", "offsets", "state", "trial",
    )  # fmt: skip

    def __init__(self, held: HeldPartition, name: str) -> None:
        self.held = held
        self.name = name
        self.offsets: list[int] = []
        """In order. A list, because many turns wait and hold one each: an empty deque takes ten times as much."""
        self.given_up: frozenset[int] = frozenset()
        """Messages among them that an operator sends to the dead letters."""
        self.attempt = 0
        """Number of the attempt at its first message; 0 = that has not begun."""
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
