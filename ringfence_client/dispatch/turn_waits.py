"""Waits of turns without a slot: for the conditions of a run, for its dead letter, and for a run that ignores its cancellation."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from aiokafka.errors import KafkaError

from ringfence_client.dispatch.failure_log import FailureLog
from ringfence_client.dispatch.poison_messages import PoisonMessages
from ringfence_client.dispatch.resting_turns import RestingTurns
from ringfence_client.dispatch.turn import Rest, Turn
from ringfence_client.handlers import group_names
from ringfence_client.handlers.effects import Effects
from ringfence_client.handlers.handler import HandlerEndedError
from ringfence_client.handlers.message import Message, MessageFactory, Retry
from ringfence_client.partition.dead_letters import DeadLetter
from ringfence_client.sends.outbox import OutgoingRecord
from ringfence_client.sends.state_store import UNREAD
from ringfence_client.sends.target_topics import SendError
from ringfence_client.window.window import End
from ringfence_kafka.errors import RingfenceError, named
from ringfence_kafka.wording import counted

log: Final = logging.getLogger("ringfence.consumer")

STATE_REST_S: Final = 1.0
"""Rest of a group whose state cannot be read now, in seconds."""

Finish = Callable[[Turn, bytes | None, Effects | None, list[OutgoingRecord] | None], None]
"""Acknowledges the messages of an attempt, with its sends."""


class TurnWaits:
    """Waits of one consumer's turns."""

    def __init__(
        self,
        resting: RestingTurns,
        suspects: PoisonMessages,
        failure_log: FailureLog,
        factory: MessageFactory,
        counts: Counter[str],
        finish: Finish,
    ) -> None:
        self._resting = resting
        self._suspects = suspects
        self._failure_log = failure_log
        self._factory = factory
        self._counts = counts
        self._finish = finish
        self._stuck: WeakKeyDictionary[asyncio.Future[Any], list[Message]] = WeakKeyDictionary()
        """Messages of abandoned runs, which may still acknowledge them."""

    def may_run(self, turn: Turn, group: bytes | None) -> bool:
        """Return whether sends have room and the state of the group is read. If not, the turn waits for this and is due again later."""
        held = turn.held
        states = held.sends.states
        waits: asyncio.Future[Any]
        if held.sends.outbox.full:
            waits = held.writer.persisted()
        elif group is None or turn.has_state or states.is_absent:
            return True
        elif (state := states.peek(group)) is not UNREAD:
            turn.read_state(state)
            return True
        else:
            waits = asyncio.create_task(self._load_state(turn, group))
        self._suspects.withdraw(turn)
        self._resting.wait(turn, waits, prepares=True)
        return False

    async def _load_state(self, turn: Turn, group: bytes) -> Rest | None:
        """Read the state of a group. A failed reading does not count as an attempt."""
        states = turn.held.sends.states
        try:
            turn.read_state(await states.load(group))
            states.record_reading(group)
        except (KafkaError, OSError, RingfenceError) as error:
            states.record_reading(group, named(error))
            self._failure_log.state_unread(
                f"{turn.held}: the state of group {group_names.shown(group)} cannot be read, so its messages wait; again in "
                f"{STATE_REST_S:g} s: {named(error)}"
            )
            return Rest(STATE_REST_S)
        return None

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
                f"{held}/{offset} goes to the dead letters after {counted(attempts, 'attempt')}: {reason} "
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

    def abandon(self, run: "asyncio.Future[Any]", messages: list[Message]) -> None:
        """Record the messages of a run that continues without its turn."""
        self._stuck[run] = messages

    def await_run(
        self, turn: Turn, run: "asyncio.Future[Any]", again: Callable[[], Rest | None] = lambda: None
    ) -> None:
        """Keep the group until an abandoned run has ended. It may finish its message; otherwise ``again`` decides about the attempt."""

        async def settle() -> Rest | None:
            await asyncio.wait([run])
            messages = self._stuck.pop(run, [])
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


def _printed(duplicate_id: bytes | None) -> str:
    return "none" if duplicate_id is None else duplicate_id.decode(errors="backslashreplace")
