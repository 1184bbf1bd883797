"""Invariants of sends and states in a world that has settled, for readers of committed data (README.md)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tests.simulator.consumers.evidence import Evidence, Letter, finished, nothing
from tests.simulator.consumers.handlers import HANDLED
from tests.simulator.consumers.world import Accepted, ConsumerWorld
from tests.simulator.kafka.logs import Stored
from tests.simulator.names import ACCEPTED
from tests.simulator.sends.handlers import LEDGER, Told, state_after, total_after
from tests.simulator.sends.world import STATE, TARGETS, sent
from tests.support.kafka import home

ID_HEADER: Final = "_AMQ_DUPL_ID"
Place = tuple[int, Stored]


class _Sends:
    """Sends of one world, judged partition by partition."""

    def __init__(self, world: ConsumerWorld, letters: Mapping[bytes, list[Letter]]) -> None:
        self._world = world
        self._letters = letters
        self._sent = {topic: sent(world.cluster, topic) for topic in TARGETS}
        self._last: dict[tuple[str, bytes], Place] = {}
        self.states: dict[bytes, bytes | None] = {}

    def judge(self, partition: int) -> Iterable[str]:
        written = self._world.committed(partition)
        done = finished(written[-1]) if written else nothing
        for offset, message in sorted(self._world.messages(partition).items()):
            name = f"{ACCEPTED}/{partition}/{offset}"
            places = [self._sent[topic].get(message.number, []) for topic in TARGETS]
            counts = [len(found) for found in places]
            given_up = bool(self._letters.get(message.number))
            is_due = done(offset) and not given_up
            if offset in self._world.eaten[partition]:
                is_due = any(counts)  # retention deleted it, perhaps while a handler had it
            if is_due and not all(counts):
                yield f"{'HALF-SENT' if any(counts) else 'UNSENT'} {name}: {counts} sends of an acknowledged message"
            elif any(count > 1 for count in counts):
                yield f"SENT-TWICE {name}: {counts}"
            elif any(counts) and (given_up or not is_due):
                yield f"IN-VAIN {name}: {counts} sends of a message that {'has a dead letter' if given_up else 'is not finished'}"
            if is_due:
                yield from self._total(name, message, places)

    def _total(self, name: str, message: Accepted, places: list[list[Place]]) -> Iterable[str]:
        group = message.group
        total = total_after(None if group is None else self.states.get(group), message.number)
        if group is not None:
            self.states[group] = state_after(total, message.number)
        for topic, found in zip(TARGETS, places, strict=True):
            for place in found:
                if place[1].value != total:
                    yield f"WRONG-TOTAL {name}: {place[1].value!r} in {topic}, the total is {total!r}"
                if group is None:
                    continue
                before = self._last.get((topic, group), place)
                if (before[0], before[1].offset) != (place[0], place[1].offset) and not (
                    before[0] == place[0] and before[1].offset < place[1].offset
                ):
                    yield f"MISORDERED {name}: {topic}/{place[0]}/{place[1].offset} follows {topic}/{before[0]}/{before[1].offset}"
                self._last[topic, group] = place


def sends(world: ConsumerWorld, letters: Mapping[bytes, list[Letter]]) -> Iterable[str]:
    judged = _Sends(world, letters)
    for partition in range(world.plan.partitions):
        yield from judged.judge(partition)
    yield from _states(world, judged.states)
    yield from _ids(world)


def _states(world: ConsumerWorld, expected: Mapping[bytes, bytes | None]) -> Iterable[str]:
    there: dict[bytes, bytes | None] = {}
    if STATE in world.cluster.topics:
        logs = world.cluster.topics[STATE].logs
        for log in logs:
            for record in log.committed():
                group = record.key or b""
                if home(group, len(logs)) != log.partition:
                    yield f"WRONG-STATE {STATE}/{log.partition}: a state of {group!r}, which is not at home there"
                there[group] = record.value
    for group in sorted({*there, *expected}):
        if there.get(group) != expected.get(group):
            yield f"WRONG-STATE {group!r}: {there.get(group)!r}, the total is {expected.get(group)!r}"


def _ids(world: ConsumerWorld) -> Iterable[str]:
    by_number: dict[bytes, bytes | None] = {}
    numbers: dict[bytes | None, bytes] = {}
    for log in world.cluster.topics[LEDGER].logs:
        for record in log.records:
            headers = dict(record.headers)
            number, own = headers["t"] or b"", headers.get(ID_HEADER)
            if not own or by_number.setdefault(number, own) != own:
                yield f"WRONG-ID {LEDGER}: message {number!r} sent {own!r}, and before {by_number.get(number)!r}"
            if numbers.setdefault(own, number) != number:
                yield f"WRONG-ID {LEDGER}: {own!r} is of message {number!r} and of {numbers[own]!r}"


def first_here(of: Evidence) -> Iterable[str]:
    """Check ``first_here`` in each holding: true until a message of the group is acknowledged; messages of a batch are alike."""
    for runs in of.by_token.values():
        known: set[bytes | None] = set()
        first: dict[object, bool] = {}
        """By batch, the value of its first message."""
        for run in runs:
            expected = run.group is None or run.group not in known
            if run.batch is not None:
                expected = first.setdefault(run.batch, expected)
            if run.first_here != expected:
                yield f"WRONG-FIRST {of.name}: {run} has first_here = {run.first_here}"
            if run.outcome == HANDLED:
                known.add(run.group)


def untold(of: Evidence, told: Sequence[Told]) -> Iterable[str]:
    """Yield holdings that are over without a call of ``lost(groups)`` with all groups of their runs, though the process lives."""
    newest = max(of.first, default=0)
    for token, runs in of.by_token.items():
        groups = {run.group for run in runs if run.group is not None}
        if token == newest or not groups or not runs[0].life.alive:
            continue
        life = runs[0].life
        again = [
            run.begin
            for later, row in of.by_token.items()
            if later > token
            for run in row
            if run.life is life
        ]
        until = min(again, default=math.inf)
        began = max(run.begin for run in runs if run.group is not None)
        if not any(
            item.life is life and began <= item.at <= until and groups <= item.groups for item in told
        ):
            yield f"UNTOLD {of.name}: {sorted(groups)} of token {token} until {until}"
