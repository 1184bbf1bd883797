"""The consumer group's coordinator: generations, members, session time-outs, rebalances."""

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

SESSION_S: Final = 4.0
"""Seconds of silence after which a member is removed. The product's session is 10 s; its heartbeats are as much further apart."""
REBALANCE_S: Final = 12.0

FIRST_S: Final = 0.01


class Place(NamedTuple):
    """Topic and partition."""

    topic: str
    partition: int


class Joined(NamedTuple):
    """Answer to a member, once all have joined."""

    member: str
    generation: int
    assigned: frozenset[Place]
    committed: Mapping[tuple[str, int], int]


Reply = Callable[[Joined], None]


class _Member:
    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.heard_at = now
        self.reply: Reply | None = None
        self.said: Any = None


class Group:
    """One consumer group. JoinGroup and SyncGroup are one request here."""

    def __init__(
        self,
        now: Callable[[], float],
        after: Callable[..., Any],
        dice: random.Random,
        lanes: Callable[[], Collection[tuple[Place, ...]]],
    ) -> None:
        self._now = now
        self._after = after
        self._dice = dice
        self._lanes = lanes
        self.generation = 0
        self.members: dict[str, _Member] = {}
        self.assigned: dict[str, frozenset[Place]] = {}
        self.rebalancing = False
        self.committed: dict[tuple[str, int], int] = {}
        self._count = 0
        self._round = 0

    def join(self, member: str | None, process: str, said: Any, reply: Reply) -> None:
        """Ask for the next generation, as a member or as a new one; ``said``: metadata for the assignor."""
        if member is None or member not in self.members:
            self._count += 1
            member = f"{process}-{self._count}"
            self.members[member] = _Member(member, self._now())
            self._watch(member)
        found = self.members[member]
        found.heard_at, found.said, found.reply = self._now(), said, reply
        self.rebalance()
        self._complete()

    def heartbeat(self, member: str, generation: int) -> str:
        """Note a heartbeat; return ``ok``, ``unknown``, ``old`` (another generation) or ``rebalancing``."""
        found = self.members.get(member)
        if found is None:
            return "unknown"
        if generation != self.generation:
            return "old"
        found.heard_at = self._now()
        return "rebalancing" if self.rebalancing else "ok"

    def confirm(self, member: str, generation: int) -> str:
        return self.heartbeat(member, generation)

    def leave(self, member: str) -> None:
        if self.members.pop(member, None) is not None:
            self.rebalance()
            self._complete()

    def rebalance(self) -> None:
        if not self.rebalancing:
            self.rebalancing = True
            self._round += 1
            self._after(REBALANCE_S, self._go_without, self._round)

    def _go_without(self, number: int) -> None:
        if self.rebalancing and number == self._round:
            for name in [name for name, member in self.members.items() if member.reply is None]:
                del self.members[name]
            self._complete()

    def _complete(self) -> None:
        if not self.generation and self._now() < FIRST_S:
            self._after(FIRST_S, self._complete)
            return
        if not self.rebalancing or any(member.reply is None for member in self.members.values()):
            return
        self.rebalancing = False
        self.generation += 1
        self.assigned = self._assignment()
        for member in self.members.values():
            reply, member.reply, member.heard_at = member.reply, None, self._now()
            if reply is not None:
                reply(Joined(member.name, self.generation, self.assigned[member.name], dict(self.committed)))

    def _assignment(self) -> dict[str, frozenset[Place]]:
        """Assign the lanes: half of the time they stay with their owners, else they are dealt out again."""
        names = sorted(self.members)
        found: dict[str, set[Place]] = {name: set() for name in names}
        if not names:
            return {}
        sticky = self._dice.random() < 0.5
        self._dice.shuffle(names)
        lanes = sorted(self._lanes())
        most = -(-len(lanes) // len(names))
        for number, lane in enumerate(lanes):
            former = next((name for name in names if sticky and lane[0] in self.assigned.get(name, ())), None)
            if former is None or len(found[former]) >= most * len(lane):
                former = names[number % len(names)]
            found[former].update(lane)
        return {name: frozenset(places) for name, places in found.items()}

    def _watch(self, member: str) -> None:
        """Remove a silent member. One that waits to join lives as long as its connection; here: until the rebalance ends."""
        found = self.members.get(member)
        if found is None:
            return
        silent = self._now() - found.heard_at
        if silent >= SESSION_S and found.reply is None:
            self.leave(member)
        else:
            self._after(max(0.1, SESSION_S - silent), self._watch, member)
