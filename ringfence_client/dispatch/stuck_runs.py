"""Runs that ignore their cancellation: their groups wait for them, and they may still acknowledge their messages."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from ringfence_client.dispatch.resting_turns import RestingTurns
from ringfence_client.dispatch.turn import Rest, Turn
from ringfence_client.handlers.effects import Effects
from ringfence_client.handlers.message import Message
from ringfence_client.sends.outgoing_record import OutgoingRecord
from ringfence_client.sends.target_topics import SendError

log: Final = logging.getLogger("ringfence.consumer")

Finish = Callable[[Turn, bytes | None, Effects | None, list[OutgoingRecord] | None], None]
"""Acknowledges the messages of an attempt, with its sends."""


class StuckRuns:
    """Abandoned runs of one consumer."""

    def __init__(self, resting: RestingTurns, finish: Finish) -> None:
        self._resting = resting
        self._finish = finish
        self._messages: WeakKeyDictionary[asyncio.Future[Any], list[Message]] = WeakKeyDictionary()

    def add(self, run: "asyncio.Future[Any]", messages: list[Message]) -> None:
        """Record the messages of a run that continues without its turn."""
        self._messages[run] = messages

    def wait(
        self, turn: Turn, run: "asyncio.Future[Any]", again: Callable[[], Rest | None] = lambda: None
    ) -> None:
        """Keep the group, without a slot, until a run has ended. The run may finish its message.

        Otherwise ``again`` decides about the attempt.
        """

        async def settle() -> Rest | None:
            await asyncio.wait([run])
            messages = self._messages.pop(run, [])
            is_finished = not run.cancelled() and run.exception() is None
            if is_finished and not turn.held.window.closed and turn.offsets:
                is_finished = await self._acknowledge(turn, messages)
            if turn.held.draining:
                turn.put_back()
                return None
            return None if is_finished else again()

        self._resting.wait(turn, asyncio.create_task(settle()))

    async def _acknowledge(self, turn: Turn, messages: list[Message]) -> bool:
        """Acknowledge the messages of a run. Returns False if its sends cannot be written."""
        sent: list[OutgoingRecord] = []
        effects = messages[0].effects if messages else None
        if effects is not None and effects.are_asked_for:
            try:
                sent = await turn.held.sends.resolve(effects)
            except SendError as error:
                log.warning("%s/%d: %s", turn.held, turn.offsets[0], error)
                return False
            finally:
                effects.end()
        if turn.held.window.closed or not turn.offsets:
            return True
        turn.join_batch(message.offset for message in messages[1:])
        self._finish(turn, messages[0].group if messages else None, effects, sent)
        return True
