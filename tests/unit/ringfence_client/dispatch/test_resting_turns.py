"""Turns that rest: retries of a partition that must prepare each of them leave room for all others."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from ringfence_client.dispatch.resting_turns import RestingTurns
from ringfence_client.dispatch.turn import Turn


class Held:
    """A partition of which every message has failed once."""

    draining = ending = False

    def __init__(self) -> None:
        attempts = SimpleNamespace(failures=dict.fromkeys(range(1_000)))
        self.window = SimpleNamespace(attempts=attempts, closed=False)


def _turn(held: Held, offset: int) -> Turn:
    turn = Turn(cast("Any", held), "1")
    turn.offsets.append(offset)
    return turn


async def test_retries_that_must_be_prepared_leave_room() -> None:
    """A partition gives no more retries while as many as allowed wait for it; another partition does, and so does this one later."""
    resting = RestingTurns(lambda: None)
    slow, other = Held(), Held()
    turns = [_turn(slow, offset) for offset in range(100)]
    for turn in [*turns, _turn(other, 7)]:
        resting.due(turn)
    prepared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    given = []
    while (taken := resting.next_retry(3)) is not None:
        given.append((cast("Any", taken.held) is slow, taken.offsets[0]))
        if cast("Any", taken.held) is slow:
            resting.wait(taken, prepared, prepares=True)

    assert given == [(True, 0), (False, 7), (True, 1), (True, 2)]
    assert resting.preparing[cast("Any", slow)] == 3
    assert resting.next_due() is None
    prepared.set_result(None)
    await asyncio.sleep(0)
    assert resting.preparing[cast("Any", slow)] == 0
    again = [taken.offsets[0] for _ in range(100) if (taken := resting.next_retry(3)) is not None]
    assert again == [*range(3, 100), 0, 1, 2]


async def test_a_partition_that_is_suspended_gives_no_retry() -> None:
    """A suspended partition gives no retry. Its turns wait, and return in their order."""
    resting = RestingTurns(lambda: None)
    held = Held()
    held.window.attempts.rest = lambda _offsets: None
    turns = [_turn(held, offset) for offset in range(3)]
    for turn in turns:
        resting.due(turn)
    held.draining = True
    resting.suspend(cast("Any", held))

    assert resting.next_retry(3) is None
    held.draining = False
    resting.resume()
    assert [resting.next_retry(3) for _ in range(4)] == [*turns, None]
