"""Which attempts begin beside one another after a crash."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringfence_client.dispatch import poison_messages
from ringfence_client.dispatch.poison_messages import PoisonMessages
from ringfence_client.dispatch.turn import Turn


class _Turn:
    startable = Turn.startable

    def __init__(self, number: int, held: Any) -> None:
        self.offsets = [number]
        self.held = held
        self.trial: asyncio.Future[None] | None = None
        self.counted = True

    def put_on_trial(self, trial: "asyncio.Future[None]", *, counted: bool) -> None:
        self.trial, self.counted = trial, counted

    def end(self) -> None:
        assert self.trial is not None
        self.trial.set_result(None)


class _Scene:
    """A consumer with so many handlers, and turns that ask until they may begin."""

    def __init__(self, concurrency: int, soon: int = 0) -> None:
        self.suspects = PoisonMessages(concurrency, lambda: soon)
        self.held = SimpleNamespace(draining=False, window=SimpleNamespace(closed=False))
        self.begun: list[int] = []
        self.turns: dict[int, _Turn] = {}

    async def ask(self, number: int, *, last: bool = False, first: bool = False, starts: bool = True) -> None:
        turn = self.turns[number] = _Turn(number, self.held)
        self._ask(turn, last, first, starts)
        await self.settle()

    def _ask(self, turn: _Turn, last: bool, first: bool, starts: bool) -> None:
        admitted = self.suspects.begin_trial(cast("Turn", turn), last=last, first=first)
        if admitted is None:
            self.begun.append(turn.offsets[0])
            if starts:
                self.suspects.started(cast("Turn", turn))
        else:
            admitted.add_done_callback(lambda _: self._ask(turn, last, first, starts))

    async def end(self, number: int) -> None:
        self.turns[number].end()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


async def test_no_more_are_begun_than_there_are_handlers() -> None:
    """An attempt counts when it begins: a death must not count for a thousand messages that wait."""
    scene = _Scene(3)
    for number in range(1_000):
        await scene.ask(number)
    assert scene.begun == [0, 1, 2]
    for number in range(10):
        await scene.end(number)
    assert scene.begun == list(range(13))


async def test_many_unknown_ones_are_begun_while_handlers_are_quick() -> None:
    """While handlers are quick, many first attempts begin before one write; a write for each few of them would take minutes."""
    scene = _Scene(3, soon=50)
    for number in range(100):
        await scene.ask(number, first=True, starts=number < 3)
    assert scene.begun == list(range(50))
    await scene.ask(100)
    for number in range(60):
        await scene.end(number)
    assert scene.begun == list(range(100))
    for number in range(60, 100):
        await scene.end(number)
    assert scene.begun[-1] == 100


async def test_isolation_begins_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A last attempt waits for one that has no slot yet: only a running attempt can show that it ends no process."""
    monkeypatch.setattr(poison_messages, "ISOLATION_S", 0.01)
    scene = _Scene(2, soon=50)
    await scene.ask(0, first=True, starts=False)
    await scene.ask(1, last=True)
    await asyncio.sleep(0.05)
    assert scene.begun == [0]
    scene.suspects.started(cast("Turn", scene.turns[0]))
    await asyncio.sleep(0.05)
    assert scene.begun == [0, 1]


async def test_a_last_attempt_is_alone() -> None:
    """A last attempt waits for those that run, and later ones wait for it."""
    scene = _Scene(3)
    await scene.ask(0)
    await scene.ask(1, last=True)
    await scene.ask(2)
    assert scene.begun == [0]
    await scene.end(0)
    assert scene.begun == [0, 1]
    await scene.end(1)
    assert scene.begun == [0, 1, 2]


async def test_both_lines_move() -> None:
    """Many last attempts and many others: after each of the first as many of the second begin as there are handlers."""
    scene = _Scene(2)
    for number in range(100, 104):
        await scene.ask(number, last=True)
    for number in range(8):
        await scene.ask(number)
    order: list[int] = []
    while len(order) < 12:
        for number in [number for number in scene.begun if number not in order]:
            order.append(number)
            await scene.end(number)

    assert order == [100, 0, 1, 101, 2, 3, 102, 4, 5, 103, 6, 7]


async def test_isolation_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A last attempt that hangs holds up others for so long, and no more; the next one beside it is not counted."""
    monkeypatch.setattr(poison_messages, "ISOLATION_S", 0.05)
    scene = _Scene(3)
    await scene.ask(0, last=True)
    await scene.ask(1)
    await scene.ask(2, last=True)
    assert scene.begun == [0]
    assert list(scene.suspects.faults())
    await asyncio.sleep(0.06)
    await scene.settle()
    assert scene.begun == [0, 1]
    await scene.end(1)

    assert scene.begun == [0, 1, 2]
    assert (scene.turns[0].counted, scene.turns[2].counted) == (True, False)


async def test_last_attempts_follow_one_another_after_isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A last attempt that outlives its isolation makes room for the next one when it ends."""
    monkeypatch.setattr(poison_messages, "ISOLATION_S", 0.05)
    scene = _Scene(2)
    await scene.ask(0, last=True)
    await scene.ask(1, last=True)
    await asyncio.sleep(0.06)
    await scene.settle()
    assert scene.begun == [0]
    await scene.end(0)

    assert scene.begun == [0, 1]


async def test_suspended_turns_keep_nobody_waiting() -> None:
    """A partition with waiting turns goes to another consumer, although one of its turns was allowed to begin."""
    scene, away = _Scene(1), SimpleNamespace(draining=False, window=SimpleNamespace(closed=False))
    await scene.ask(0)
    for number in (1, 2):
        turn = scene.turns[number] = _Turn(number, away)
        assert scene.suspects.begin_trial(cast("Turn", turn), last=number == 1) is not None
    await scene.ask(3)
    await scene.end(0)
    assert scene.begun == [0]
    away.draining = True
    scene.suspects.admit_turns()
    await scene.settle()

    assert scene.begun == [0, 3]


async def test_one_that_does_something_else_first() -> None:
    """A turn that was allowed to begin, but whose message an operator dropped, yields its place to the next."""
    scene = _Scene(1)
    await scene.ask(0)
    turn = _Turn(1, scene.held)
    assert scene.suspects.begin_trial(cast("Turn", turn), last=False) is not None
    await scene.ask(2)
    await scene.end(0)
    assert scene.begun == [0]
    scene.suspects.withdraw(cast("Turn", turn))
    await scene.settle()

    assert scene.begun == [0, 2]
