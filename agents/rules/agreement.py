"""Agreement of live workers on limits, and on rules that a lane has not recorded yet."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from aiokafka.errors import KafkaError

from agents.rules.lane_rules import Rules, unlike_fault
from agents.rules.member_statements import Statement, decode, own_statement, unlike_limits
from ringfence_kafka import clock
from ringfence_kafka.concurrency.coalesce import RequestCoalescer
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.groups.static_members import Member

log: Final = logging.getLogger("ringfence.worker")

ASK_LIMIT_S: Final = 5.0
"""Limit of one query to the group, in seconds."""
STABLE_LIMIT_S: Final = 2.0
"""A rebalancing group does not report its members' statements. The query is repeated for this time, in seconds."""
AGAIN_S: Final = 0.1
SETTLE_S: Final = 20.0
"""Time of agreement that is required after a disagreement, in seconds.

During a rolling restart a worker with an old file may be the only live one. It must not shrink rings.
"""

AskMembers = Callable[[], Awaitable[Sequence[Member]]]


class Agreement:
    """Statements of live workers, from the metadata of the group."""

    def __init__(
        self, settings: Settings, ask_members: AskMembers | None = None, now: Callable[[], float] = clock.now
    ) -> None:
        """Create the agreement. ``ask_members``: queries the members of the group, None = this worker is the only one; ``now``: clock, in s."""
        self._now = now
        self._unlike_at: dict[str, float] = {}
        """Time of the last disagreement, by address."""
        self._own = own_statement(settings)
        self._ask_members = ask_members
        self._coalescer: RequestCoalescer[None, Sequence[Statement] | None] = RequestCoalescer(self._answer)
        """Coalesces queries, because many lanes open at the same time."""
        self.by_address: dict[str, list[str]] = {}
        """Disagreements on limits by address, from the last query. Addresses without one are absent."""

    async def stop(self) -> None:
        """Stop. Waiting queries raise StoppedError."""
        await self._coalescer.stop()

    async def refresh(self) -> None:
        """Query the group and log each new disagreement. Without an answer nothing changes."""
        statements = await self._coalescer.answer(None)
        if statements is None:
            return
        found = {
            name: those for name in self._own.addresses or () if (those := self._unlike(name, statements))
        }
        for name, those in found.items():
            if those != self.by_address.get(name):
                log.warning(
                    "address %s: live workers do not agree on what its rings remember: %s. Each ring keeps its recorded limits. They change "
                    "when all live workers have the same file", name, "; ".join(those),
                )  # fmt: skip
        for name in self.by_address.keys() - found.keys():
            log.info("address %s: all live workers agree on what its rings remember", name)
        self.by_address = found

    async def on_limits(self, address: str) -> list[str]:
        """Return the disagreements on the limits of an address; empty if all live workers agree."""
        statements = await self._coalescer.answer(None)
        if statements is None:
            return ["the group does not report the limits of its members"]
        return self._unlike(address, statements)

    def _unlike(self, address: str, statements: Sequence[Statement]) -> list[str]:
        """Return the result of :func:`unlike_limits`. A new agreement counts after :data:`SETTLE_S`."""
        found, now = unlike_limits(address, statements), self._now()
        if found:
            self._unlike_at[address] = now
        elif now - self._unlike_at.get(address, -SETTLE_S) < SETTLE_S:
            return [f"their agreement is younger than {SETTLE_S:.0f} s"]
        return found

    async def others_can_hold(self) -> bool:
        """Return whether another live worker can hold lanes; True if the group does not answer."""
        statements = await self._coalescer.answer(None)
        if statements is None:
            return True
        return any(
            statement.worker != self._own.worker
            and statement.addresses is not None
            and not statement.unusable
            for statement in statements
        )

    async def unlike_rules(self, address: str, own: Rules) -> str | None:
        """Return the problem if a live worker states other rules for the address."""
        for item in await self._coalescer.answer(None) or ():
            said = (item.addresses or {}).get(address)
            if said is not None and (fault := unlike_fault(address, item.worker, said.rules, own)):
                return fault
        return None

    async def _answer(self, questions: Collection[None]) -> Mapping[None, Sequence[Statement] | None]:
        return dict.fromkeys(questions, await self._statements())

    async def _statements(self) -> Sequence[Statement] | None:
        """Return the statements of all live workers, including this one; None if the group does not answer."""
        if self._ask_members is None:
            return [self._own]
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(ASK_LIMIT_S):
                for _ in range(round(STABLE_LIMIT_S / AGAIN_S)):
                    members = await self._ask_members()
                    if all(member.metadata is not None for member in members):
                        told = [decode(member.metadata.user_data, member.member_id) for member in members]
                        return [self._own, *told]
                    await asyncio.sleep(AGAIN_S)
        return None
