"""The ledger against a plain list that is scanned each time, through all that consumers may do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ringfence_client.window import ledger
from ringfence_client.window.ledger import GroupInfo, GroupLedger
from tests.property import examples

CONSUMERS = ("anne", "ben", "cleo")
GROUPS = (b"A", b"B", b"C", b"")
STALE_MIN = 2
"""Number of stale entries from which heaps of heads are swept: small, so that it happens in short runs too."""

consumers = st.sampled_from(CONSUMERS)
groups = st.sampled_from([*GROUPS, None])
positions = st.integers(0, 40)


@dataclass
class Message:
    """An unfinished message."""

    position: int
    group: bytes | None
    timestamp: int
    holder: str | None = None


class Model:
    """The rules of the ledger as a plain program."""

    def __init__(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self.messages: list[Message] = []
        """Unfinished messages, by position."""

    def append(self, message: Message) -> None:
        self.messages = sorted([*self.messages, message], key=lambda item: item.position)

    def held(self, group: bytes | None) -> list[Message]:
        return [message for message in self.messages if message.group == group and message.holder is not None]

    def owner(self, group: bytes | None) -> str | None:
        holders = {message.holder for message in self.held(group)}
        return holders.pop() if group is not None and holders else None

    def available(self, message: Message, consumer: str) -> bool:
        if message.holder is not None:
            return False
        return message.group is None or (
            self.owner(message.group) in (None, consumer) and len(self.held(message.group)) < self.prefetch
        )

    def acquire(self, consumer: str) -> int | None:
        for message in self.messages:
            if self.available(message, consumer):
                message.holder = consumer
                return message.position
        return None

    def claim(self, consumer: str, group: bytes, count: int | None) -> list[int]:
        if self.owner(group) not in (None, consumer):
            return []
        for message in self.messages:
            if message.group == group and message.holder is None:
                if count is not None and len(self.held(group)) >= count:
                    break
                message.holder = consumer
        return [message.position for message in self.held(group)]

    def release(self, message: Message) -> list[int]:
        back = [
            item
            for item in self.held(message.group)
            if item is message or (message.group is not None and item.position > message.position)
        ]
        return self.put_back(back)

    def put_back(self, messages: Sequence[Message]) -> list[int]:
        for message in messages:
            message.holder = None
        return [message.position for message in messages]

    def drop(self, messages: Sequence[Message]) -> list[int]:
        self.messages = [message for message in self.messages if message not in messages]
        return [message.position for message in messages]

    def groups(self) -> list[GroupInfo]:
        rows = []
        for group in dict.fromkeys(message.group for message in self.messages):
            all_of_it = [message for message in self.messages if message.group == group]
            rows.append(
                GroupInfo(
                    group,
                    len(all_of_it),
                    len(self.held(group)),
                    self.owner(group),
                    all_of_it[0].position,
                    all_of_it[0].timestamp,
                )
            )
        return rows


class Ledger(RuleBasedStateMachine):
    """Ledger and model, side by side."""

    prefetches: tuple[int, ...] = (1, 2, 3)

    @initialize(prefetch=st.sampled_from(prefetches))
    def begin(self, prefetch: int) -> None:
        self.ledger = GroupLedger(prefetch)
        self.model = Model(prefetch)
        self.time = 0
        self.appended = 0
        self.gone: list[int] = []

    def message(self, data: st.DataObject, *, held: bool) -> Message | None:
        """Draw one of the messages that are held, or one that waits; None if there is none."""
        chosen = [message for message in self.model.messages if (message.holder is not None) is held]
        return data.draw(st.sampled_from(chosen)) if chosen else None

    # -- what happens ------------------------------------------------------------------------------------------

    @rule(position=positions, group=groups)
    def append(self, position: int, group: bytes | None) -> None:
        self.time += 1
        if any(message.position == position for message in self.model.messages):
            with pytest.raises(ValueError, match=f"^{position} is in the ledger already"):
                self.ledger.append(position, group, self.time)
            return
        self.ledger.append(position, group, self.time)
        self.model.append(Message(position, group, self.time))
        self.appended += 1

    @rule(first=positions, names=st.lists(groups, max_size=8))
    def append_a_batch(self, first: int, names: list[bytes | None]) -> None:
        """Append messages as they come from a partition: in order, and next to each other."""
        for position, group in enumerate(names, first):
            self.append(position, group)

    @rule(consumer=consumers, count=st.integers(1, 6))
    def acquire(self, consumer: str, count: int) -> None:
        got = [self.ledger.acquire(consumer) for _ in range(count)]

        assert got == [self.model.acquire(consumer) for _ in range(count)]

    @rule(consumer=consumers, group=groups, count=st.none() | st.integers(1, 4))
    def claim(self, consumer: str, group: bytes | None, count: int | None) -> None:
        if group is not None:
            assert self.ledger.claim(consumer, group, count) == self.model.claim(consumer, group, count)

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if message := self.message(data, held=True):
            self.ledger.acknowledge(message.holder, message.position)
            self.gone += self.model.drop([message])

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if message := self.message(data, held=True):
            released = self.ledger.release(message.holder, message.position)

            assert released == self.model.release(message)

    @rule(consumer=consumers)
    def close(self, consumer: str) -> None:
        held = [message for message in self.model.messages if message.holder == consumer]

        assert self.ledger.close(consumer) == self.model.put_back(held)

    @rule(group=groups)
    def purge(self, group: bytes | None) -> None:
        waiting = [
            message for message in self.model.messages if message.group == group and message.holder is None
        ]
        dropped = self.model.drop(waiting)
        self.gone += dropped

        assert self.ledger.purge(group) == dropped

    @rule(
        data=st.data(),
        consumer=consumers,
        act=st.sampled_from([GroupLedger.acknowledge, GroupLedger.release]),
    )
    def act_on_anothers(self, data: st.DataObject, consumer: str, act: Callable[..., object]) -> None:
        """Require an error that names the holder of another's message, or nobody for one that waits or is not there."""
        position = data.draw(positions)
        message = next((message for message in self.model.messages if message.position == position), None)
        holder = message.holder if message else None
        if holder == consumer:
            return
        with pytest.raises(KeyError) as caught:
            act(self.ledger, consumer, position)

        assert f"{position} is held by {repr(holder) if holder else 'no consumer'}" in caught.value.args[0]

    @precondition(lambda self: len(self.model.messages) > 6)
    @rule(order=st.permutations(CONSUMERS))
    def drain(self, order: Sequence[str]) -> None:
        """Let consumers by turns take and finish one message after the other: all there is, in order."""
        for consumer in CONSUMERS:
            self.close(consumer)
        seen: list[int] = []
        for consumer in cycle(order):
            if (position := self.ledger.acquire(consumer)) is None:
                break
            seen.append(position)
            self.ledger.acknowledge(consumer, position)

        assert seen == [message.position for message in self.model.messages]
        self.gone += self.model.drop(self.model.messages)

    # -- what holds at any time --------------------------------------------------------------------------------

    @invariant()
    def says_what_the_model_says(self) -> None:
        assert self.ledger.groups() == self.model.groups()
        for consumer in CONSUMERS:
            held = [message.position for message in self.model.messages if message.holder == consumer]
            assert self.ledger.holds(consumer) == held

    @invariant()
    def nothing_is_lost(self) -> None:
        assert len(self.ledger) == len(self.model.messages) == self.appended - len(self.gone)


@pytest.mark.parametrize("stale_min", [STALE_MIN, ledger._STALE_MIN])
def test_ledger_keeps_the_rules(stale_min: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each consumer gets the messages due by the rules, in any order of actions, and nothing is lost."""
    monkeypatch.setattr(ledger, "_STALE_MIN", stale_min)
    run_state_machine_as_test(
        Ledger,
        settings=settings(max_examples=examples(300), stateful_step_count=50, report_multiple_bugs=False),
    )
