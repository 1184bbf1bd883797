"""Sends messages to the dead letters."""

import asyncio
from collections import Counter
from typing import Any

from ringfence_client.dispatch.failure_log import FailureLog
from ringfence_client.dispatch.resting_turns import RestingTurns
from ringfence_client.dispatch.turn import Turn
from ringfence_client.handlers import group_names
from ringfence_client.handlers.handler import HandlerEndedError
from ringfence_client.handlers.message import Message, MessageFactory, Retry
from ringfence_client.partition.dead_letters import DeadLetter
from ringfence_client.window.window import End


class DeadLetterSender:
    """Dead letters of one consumer."""

    def __init__(
        self, factory: MessageFactory, resting: RestingTurns, counts: Counter[str], failure_log: FailureLog
    ) -> None:
        """Prepare for one consumer. Each dead letter increments ``counts``, and ``failure_log`` logs it."""
        self._factory = factory
        self._resting = resting
        self._counts = counts
        self._failure_log = failure_log

    def write_dead_letter(
        self, turn: Turn, record: Any, reason: str, error: BaseException | None = None, *, parks: bool
    ) -> None:
        """Write a dead letter, unless a parked message has one. Its group waits until it is written or, with ``parks``, until it is redriven."""
        held, offset = turn.held, turn.offsets[0]
        attempts = held.window.attempts.counts.get(offset, 0)
        written: asyncio.Future[None] | None = None
        if offset not in held.window.redrives.blocked:
            message: Message = self._factory.make(record, attempts, held.fence)
            trace = error if error is not None and not isinstance(error, Retry | HandlerEndedError) else None
            self._failure_log.dead_letter(
                f"{held}/{offset} goes to the dead letters after {attempts} attempts: {reason} "
                f"(group {group_names.shown_or_none(message.group)}, ID {_printed(message.duplicate_id)})",
                trace,
            )
            redrives = held.window.redrives.counts.get(offset, 0)
            written = held.writer.write_dead_letter(DeadLetter(record, reason, attempts, redrives, parks))
        turn.over()

        async def settle() -> None:
            if written is not None:
                await written
            if held.window.closed:
                return
            if not parks:
                turn.finish(End.REJECT)
            self._counts["dead_letters"] += written is not None

        self._resting.wait(turn, asyncio.create_task(settle()), keeps=True)


def _printed(duplicate_id: bytes | None) -> str:
    return "none" if duplicate_id is None else duplicate_id.decode(errors="backslashreplace")
