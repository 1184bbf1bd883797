"""Handlers that send: one record to a plain topic, one to an address, and a running total of each group in its state."""

import asyncio
from collections.abc import Awaitable, Collection
from typing import Any, Final, NamedTuple

from ringfence_client import Message
from ringfence_client.handlers.effects import Effects
from ringfence_client.sends.outbox import OutgoingRecord
from ringfence_client.sends.partition_sends import PartitionSends
from ringfence_client.sends.target_topics import SendError
from tests.simulator.consumers.handlers import HANDLED, IN_VAIN, Handling, Run
from tests.simulator.loop import ProcessLoop
from tests.simulator.names import OTHER

PLAIN: Final = "billed"
LEDGER: Final = OTHER
NOWHERE: Final = 99
DELETES_EVERY: Final = 7


class Told(NamedTuple):
    """A call of ``lost(groups)``."""

    life: ProcessLoop
    at: float
    groups: frozenset[bytes]


def total_after(total: bytes | None, number: bytes) -> bytes:
    """Return the running total: the numbers of all messages of the group, in order, so that it shows each of them."""
    return number if total is None else total + b"," + number


def state_after(total: bytes, number: bytes) -> bytes | None:
    return None if int(number) % DELETES_EVERY == 0 else total


class SendingHandling(Handling):
    """All runs of a world whose handlers send."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Told] = []
        self.lost = self._lost

    async def _lost(self, groups: Collection[bytes]) -> None:
        loop: Any = asyncio.get_running_loop()
        self.told.append(Told(loop, loop.time(), frozenset(groups)))

    def before(self, message: Message, run: Run) -> None:
        run.first_here, run.effects = message.first_here, message.effects
        run.total = total_after(message.state, run.number)
        message.send(PLAIN, run.total, headers=[("t", run.number)])
        if message.group is not None:
            message.state = state_after(run.total, run.number)

    async def after(self, message: Message, run: Run) -> None:
        partition = NOWHERE if run.task == "unsendable" else None
        await message.send(LEDGER, run.total, headers={"t": run.number}, partition=partition)

    async def resolved(
        self, effects: Effects, places: Awaitable[list[OutgoingRecord]]
    ) -> list[OutgoingRecord]:
        """Note that runs are not over before their sends have places, and that they failed if those have none."""
        loop: Any = asyncio.get_running_loop()
        runs = [run for run in self.runs if run.effects is effects and run.outcome == HANDLED]
        outcome = IN_VAIN if len(runs) > 1 else "unsent"
        for run in runs:
            run.end = None
        try:
            found = await places
            outcome = HANDLED
            return found
        finally:
            if loop.alive:
                for run in runs:
                    run.end, run.outcome = loop.time(), outcome

    def unsent(self, effects: Effects) -> None:
        runs = [run for run in self.runs if run.effects is effects and run.outcome == HANDLED]
        for run in runs:
            run.outcome = IN_VAIN if len(runs) > 1 else "unsent"


_resolve: Final = PartitionSends.resolve
_resolve_at_once: Final = PartitionSends.resolve_at_once


def resolve_at_once(sends: PartitionSends, effects: Effects) -> list[OutgoingRecord] | None:
    try:
        return _resolve_at_once(sends, effects)
    except SendError:
        loop: Any = asyncio.get_running_loop()
        loop.process.handling.unsent(effects)
        raise


async def resolve(sends: PartitionSends, effects: Effects) -> list[OutgoingRecord]:
    loop: Any = asyncio.get_running_loop()
    found: list[OutgoingRecord] = await loop.process.handling.resolved(effects, _resolve(sends, effects))
    return found
