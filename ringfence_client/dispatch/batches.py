"""Choice of the messages of one handler call."""

from itertools import takewhile
from typing import Any

from ringfence_client.dispatch.turn import Turn
from ringfence_client.handlers.effects import Effects
from ringfence_client.handlers.handler import HandlerRuns
from ringfence_client.handlers.message import Message, MessageFactory


class Batches:
    """Creates the messages of attempts: one message, or with ``--batch`` several untried ones of one group."""

    def __init__(self, factory: MessageFactory, runs: HandlerRuns, size: int) -> None:
        """Prepare the batches. ``size``: limit of messages in a batch; at most 1 = no batches."""
        self._factory = factory
        self._runs = runs
        self._size = size

    def messages_of(self, turn: Turn, record: Any) -> list[Message]:
        """Return the messages of a new attempt: the first one of the turn, and those that join it."""
        held = turn.held
        effects = Effects(turn.state, held.sends.states.fault)
        redriven = held.window.redrives.counts.get(record.offset, 0)
        first_here = held.is_first(record.key)
        first = self._factory.make(
            record, turn.attempt, held.fence, redriven, first_here=first_here, effects=effects
        )
        if self._size <= 1 or len(turn.offsets) == 1 or redriven or not _may_lead(turn, record.offset):
            return [first]
        found = (self._joining(turn, offset) for offset in turn.offsets[1 : self._size])
        records: list[Any] = list(takewhile(lambda item: item is not None, found))
        turn.begin_batch([item.offset for item in records])
        others = (
            self._factory.make(item, 1, held.fence, first_here=first_here, effects=effects)
            for item in records
        )
        return [first, *others]

    def _joining(self, turn: Turn, offset: int) -> Any | None:
        """Return the record of a later message if it may join the batch; None if it failed, or may have ended a process."""
        window, attempts = turn.held.window, turn.held.window.attempts
        if (
            offset in attempts.counts
            or offset in attempts.failures
            or offset in turn.given_up
            or offset in window.redrives.counts
            or offset in window.redrives.blocked
            or not window.suspect_below <= offset < window.reserved
            or self._runs.left(turn.held.fence.log, offset) is not None
        ):
            return None
        window.cache.recall(offset)
        return window.cache.record(offset)


def _may_lead(turn: Turn, first: int) -> bool:
    """Return whether others may join the first message of a turn: it has not failed, alone or in a batch."""
    return turn.attempt == 1 and not turn.has_failed and first >= turn.alone_below and turn.trial is None
