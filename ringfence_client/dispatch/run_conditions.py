"""Conditions of a handler's run: room for its sends, and the state of its group."""

import asyncio
from typing import Any, Final

from aiokafka.errors import KafkaError

from ringfence_client.dispatch.failure_log import FailureLog
from ringfence_client.dispatch.poison_messages import PoisonMessages
from ringfence_client.dispatch.resting_turns import RestingTurns
from ringfence_client.dispatch.turn import Rest, Turn
from ringfence_client.handlers import group_names
from ringfence_client.sends.state_store import UNREAD
from ringfence_kafka.errors import RingfenceError, named

STATE_REST_S: Final = 1.0
"""Rest of a group whose state cannot be read now, in seconds."""


class RunConditions:
    """Lets turns wait, without a slot, for the conditions of their handlers."""

    def __init__(self, resting: RestingTurns, suspects: PoisonMessages, failure_log: FailureLog) -> None:
        self._resting = resting
        self._suspects = suspects
        self._failure_log = failure_log

    def are_there(self, turn: Turn, group: bytes | None) -> bool:
        """Return whether all conditions hold. If not, the turn waits for them and is due again later."""
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
            states.record_success(group)
        except (KafkaError, OSError, RingfenceError) as error:
            states.record_failure(group, named(error))
            self._failure_log.state_unread(
                f"{turn.held}: the state of group {group_names.shown(group)} cannot be read, so its messages wait; again in "
                f"{STATE_REST_S:g} s: {named(error)}"
            )
            return Rest(STATE_REST_S)
        return None
