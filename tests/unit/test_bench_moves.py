"""What the benchmark of moves makes of what it sees."""

import pytest

from bench.moves import judge
from bench.stage import Happened, longest_hold
from bench.steady import Seen
from bench.worker_log import Event


def _seen(partition: int, *moments: float) -> list[Seen]:
    return [Seen(partition, number, moment, moment) for number, moment in enumerate(moments)]


def _log() -> list[Event]:
    """Of both workers together, in any order."""
    lines = [(12.1, "assigned 2"), (12.0, "rebalance: 4"), (12.2, "assigned 2"), (9.0, "rebalance: 0")]
    return [Event(moment, text) for moment, text in lines]


def test_stayed_and_moved_are_told_apart() -> None:
    """Each lane's longest silence counts from the beginning on, and whoever had it before and after says which kind it is."""
    seen = [
        *_seen(0, 9.0, 10.1, 10.2, 10.5, 10.6),
        *_seen(1, 10.05, 10.1),
        *_seen(2, 10.1, 12.0, 12.1),
        *_seen(3, 11.0, 11.1),
    ]
    happened = Happened("joins", 10.0, 12.5, 13.0, frozenset({0, 1}), seen, _log(), (0.3, 0.04), 2.5)
    move = judge(happened, "here", 1_000)

    assert [move.stays_s, move.moves_s] == pytest.approx([0.3, 1.9])
    assert [move.stands_s, move.assigned_s, move.open_s, move.watched_s] == pytest.approx(
        [2.0, 2.2, 2.5, 3.0]
    )
    assert (move.held_s, move.held_cpu_s, move.cpu_s) == (0.3, 0.04, 2.5)


def test_nothing_moved() -> None:
    """Then there is no figure of it, and not a good one."""
    nothing = Happened("nothing", 0.0, 1.0, 1.0, frozenset(range(4)), [], [], (0, 0), 1)

    assert judge(nothing, "here", 1).moves_s is None


def test_holds_since() -> None:
    """The longest wait and the most CPU, of the workers together, since something began; other lines are none."""
    one = "99.000 9.000 9.000 held the loop of MainThread: <Handle>\n100.500 0.030 0.010 held the loop of x: <Handle>\n"
    two = "some line\n101.000 0.025 0.024 held the loop of MainThread: <Handle>\n"

    assert longest_hold([one, two], 100.0) == (0.03, 0.024)
    assert longest_hold([one, two], 200.0) == (0.0, 0.0)
