"""Choice of the turn that a free slot runs next."""

from collections import deque
from collections.abc import Callable
from typing import Final

from ringfence_client.dispatch.circuit_breaker import CircuitBreaker
from ringfence_client.dispatch.poison_messages import PoisonMessages
from ringfence_client.dispatch.resting_turns import RestingTurns
from ringfence_client.dispatch.turn import Rest, Turn
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.partition.partition import HeldPartition

SIFTED_MAX: Final = 250
"""Limit of failed messages that are set aside in one search for one that never failed."""


class TurnChoice:
    """Chooses among resting turns and the available messages of all partitions."""

    def __init__(
        self,
        options: ConsumerOptions,
        breaker: CircuitBreaker,
        resting: RestingTurns,
        suspects: PoisonMessages,
        wake_later: Callable[[], None],
    ) -> None:
        """Prepare a choice. ``wake_later``: asks again after the other tasks of the event loop have run."""
        self._options = options
        self._breaker = breaker
        self._resting = resting
        self._suspects = suspects
        self._wake_later = wake_later
        self.partitions: deque[HeldPartition] = deque()
        """Partitions that hand out messages, the next one first."""
        self._retries_max = max(1, options.concurrency // 2)
        """Limit of slots with retries. The other slots keep failing messages from delaying those that never failed."""
        self._retry_next = True
        """With a single handler: whether a retry is next."""

    def choose(self, name: str, retrying: int) -> Turn | None:
        """Return a turn to prepare; None = no turn is available. ``retrying``: number of slots that run retries now.

        Retries come first in up to half of the slots. A message that never failed gets any slot. While the breaker is open, messages that
        never failed come first, because retries may be those that always fail.
        """
        if not self._resting.has_retries:
            return self._resting.next_due() or self._fresh(name)
        room = retrying < self._retries_max
        first = room and not self._breaker.open and (self._options.concurrency > 1 or self._retry_next)
        self._retry_next = not self._retry_next
        if first and (turn := self._resting.next_retry(self._retries_max)) is not None:
            return turn
        fresh = self._resting.next_due() or self._fresh(name)
        if fresh is not None or not room:
            return fresh
        return self._resting.next_retry(self._retries_max)

    def _fresh(self, name: str) -> Turn | None:
        """Acquire a message, with the partitions in turn.

        A partition that can write prepares as many groups as there are handlers. Another partition prepares one, which waits for the write.
        """
        for _ in range(len(self.partitions)):
            held = self.partitions[0]
            self.partitions.rotate(-1)
            preparing = self._resting.preparing.get(held, 0)
            if preparing and preparing >= self._preparing_max(held):
                continue
            for _ in range(SIFTED_MAX):
                turn = self._acquire(held, name)
                if turn is None:
                    break
                if not turn.has_failed:
                    return turn
                self._keep_for_retry(turn)
            else:
                self._wake_later()  # more messages may follow, but other tasks of the loop come first
        return None

    def _preparing_max(self, held: HeldPartition) -> int:
        """Return the limit of groups that wait for a partition. After a crash, many of them each need a progress write."""
        if not held.writer.covers():
            return 1
        window = held.window
        return self._suspects.begun_max if window.next < window.suspect_below else self._options.concurrency

    def _acquire(self, held: HeldPartition, name: str) -> Turn | None:
        """Acquire the oldest available message of a partition, and further ones of its group up to the prefetch."""
        turn = Turn(held, name)
        ledger = held.window.ledger
        offset = ledger.acquire(turn)
        if offset is None:
            return None
        turn.offsets.append(offset)
        if self._options.held_max > 1:
            turn.offsets.extend(ledger.acquire_more(turn))
        return turn

    def _keep_for_retry(self, turn: Turn) -> None:
        """Let a message wait for its next attempt. It failed with another holder, or before a release."""
        attempts, offset, now_ms = turn.held.window.attempts, turn.offsets[0], self._resting.clock.now_ms()
        count, failures = attempts.counts.get(offset, 0), attempts.failures[offset]
        delay = self._options.policy.before_last(count, failures, now_ms)
        if delay and offset not in turn.given_up:
            self._resting.rest(turn, Rest(delay))
        else:
            self._resting.due(turn)
