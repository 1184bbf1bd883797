"""The checker of the group tests, on logs written by hand: each anomaly is seen, and what is close to one is not."""

from dataclasses import replace

import pytest

from ringfence_client.progress.progress_record import Progress
from tests.harness.checker.groups import Anomaly, Disturbance, Run, Snapshot, judge, parse
from tests.support.consumers.processes import Written

A, B = 1, 2
"""Processes."""


def run(sequence: int, begin: float, end: float | None = -1, pid: int = A, label: str = "g") -> Run:
    """Half a second long, unless it says otherwise; its offset is ten times its sequence number."""
    return Run(begin, begin + 0.5 if end == -1 else end, pid, label, sequence, offset=10 * sequence)


def found(runs: list[Run], size: int = 3, *more: object, label: str = "g") -> list[Anomaly]:
    disturbances = [item for item in more if isinstance(item, Disturbance)]
    snapshots = [item for item in more if isinstance(item, Snapshot)]
    return [run.anomaly for run in judge(runs, {label: size}, disturbances, snapshots)]


def fenced(runs: list[Run], *fences: int) -> list[Run]:
    return [replace(run, fence=fence) for run, fence in zip(runs, fences, strict=True)]


def written(time: float, progress: Progress, partition: int = 0) -> Snapshot:
    return Snapshot(time, {partition: Written(partition, progress)})


GOOD = [run(0, 0), run(1, 1), run(2, 2)]
BY_TURNS = [run(0, 0), run(1, 1, pid=B), run(2, 2)]
HEIR = [run(1, 5, pid=B), run(2, 6, pid=B)]
CUT_OFF = [run(0, 0), run(1, 1, None), *HEIR]
"""A process ended within its second run, and another one went on from there."""
FROM_THE_BEGINNING = [run(0, 0), run(1, 1), run(0, 4, pid=B), *HEIR]
AT_ONCE = [run(0, 0), run(0, 2), run(1, 3), run(2, 4)]
WOKEN = [run(0, 0), run(1, 1, 7.5), *HEIR]
FROZEN = Disturbance(A, 1.2, 8)
LATE = [run(0, 5, pid=B), run(1, 6, pid=B), run(2, 9, pid=B), run(0, 7)]
TOGETHER = [run(0, 0), run(1, 1, 6), run(1, 5, pid=B), run(2, 7, pid=B)]
LOST, REPEATED, OVERLAPPED = Anomaly.LOST, Anomaly.REPEATED, Anomaly.OVERLAPPED


@pytest.mark.parametrize(
    ("runs", "more", "anomalies"),
    [
        (GOOD, [], []),
        (BY_TURNS, [], []),
        (GOOD[:2], [], [LOST]),
        ([*GOOD[:2], run(2, 2, None)], [], [LOST]),
        ([run(0, 0), run(0, 0.5), run(1, 1), run(2, 2)], [], [REPEATED]),
        # A handler may begin at the moment at which another ends. An overlap with a longer, earlier one is seen as well.
        ([run(0, 0, 1), run(1, 1, 2), run(2, 2)], [], []),
        ([run(0, 0, 1.1), run(1, 1), run(2, 2)], [], [OVERLAPPED]),
        # A kill excuses what ran, and what had ended and was not written; the group then goes on in order.
        (CUT_OFF, [Disturbance(A, 1.2)], []),
        ([*CUT_OFF[:2], run(0, 4, pid=B), *HEIR], [Disturbance(A, 1.2)], []),
        (CUT_OFF, [], [REPEATED, OVERLAPPED, OVERLAPPED]),
        ([run(0, 0), run(0, 4, pid=B), *HEIR], [Disturbance(A, 2, unwritten=1.6)], []),
        ([run(0, 0), run(0, 4, pid=B), *HEIR], [Disturbance(A, 2, unwritten=1.4)], [REPEATED]),
        ([run(0, 0, None), run(0, 4, pid=B), *HEIR], [Disturbance(A, 2, unwritten=1.4)], []),
        # It excuses nothing of another process, or of another time.
        (AT_ONCE, [Disturbance(A, 1)], []),
        (AT_ONCE, [Disturbance(B, 1)], [REPEATED]),
        (AT_ONCE, [Disturbance(A, 9)], [REPEATED]),
        # Who goes back repeats all that follows. What a living process finished is written when the partition changes hands.
        ([*FROM_THE_BEGINNING[:3], run(2, 5, pid=B)], [Disturbance(A, 2)], [Anomaly.REORDERED]),
        ([run(0, 0, pid=B), *FROM_THE_BEGINNING[1:]], [Disturbance(A, 2)], [REPEATED]),
        # What is written is not done again, even after a kill: below the next offset, or in a finished range.
        (FROM_THE_BEGINNING, [Disturbance(A, 2), written(2, Progress(1))], [Anomaly.REDONE]),
        (
            FROM_THE_BEGINNING,
            [Disturbance(A, 2), written(2, Progress(0, finished=[(10, 11)]))],
            [Anomaly.REDONE],
        ),
        (FROM_THE_BEGINNING, [Disturbance(A, 2), written(2, Progress(0, finished=[(1, 10)]))], []),
        (FROM_THE_BEGINNING, [Disturbance(A, 2), written(2, Progress(1), partition=1)], []),
        (GOOD, [written(1.2, Progress(11))], []),  # it began before
        (GOOD, [written(0.9, Progress(11))], [Anomaly.REDONE]),
        # What a frozen process begins or ends does not count until it knows of its loss.
        ([*WOKEN, run(2, 7.6)], [FROZEN], []),
        (WOKEN, [Disturbance(A, 0.7)], [REPEATED, OVERLAPPED, OVERLAPPED]),
        ([*WOKEN, run(2, 8.1)], [FROZEN], [REPEATED]),
        # A run in its partition begins only after its lease has run out.
        (CUT_OFF, [Disturbance(A, 2, lease=3)], []),
        (CUT_OFF, [Disturbance(A, 2, lease=3.1)], [Anomaly.EARLY]),
        ([*CUT_OFF[:2], *(replace(item, partition=1) for item in HEIR)], [Disturbance(A, 2, lease=4.1)], []),
        ([run(0, 0), *HEIR], [Disturbance(A, 2, lease=4.1)], []),  # it was at rest
        (WOKEN, [Disturbance(A, 2, 8, lease=3)], []),
        (WOKEN, [Disturbance(A, 2, 8, lease=3.1)], [Anomaly.EARLY]),
    ],
)
def test_of_one_group(runs: list[Run], more: list[object], anomalies: list[Anomaly]) -> None:
    """A group of three messages has exactly these anomalies, with these disturbances and snapshots of its progress."""
    assert found(runs, 3, *more) == anomalies


def test_a_missing_message_is_lost() -> None:
    """The message after it is out of order. A message that nobody sent is a phantom."""
    for missing in (0, 1):
        assert {LOST, Anomaly.REORDERED} <= {*found([run for run in GOOD if run.sequence != missing])}
    assert [item.anomaly for item in judge([*GOOD, run(0, 0, label="x")], {"g": 3})] == [Anomaly.PHANTOM]


ELSEWHERE = [BY_TURNS[0], *(replace(turn, partition=1, pid=B) for turn in BY_TURNS[1:])]


@pytest.mark.parametrize(
    ("runs", "more", "count"),
    [
        # A holder keeps its token, and the next one has a higher token, by any amount.
        (fenced(GOOD, 1, 2, 5), [], 0),
        (fenced(BY_TURNS, 1, 2, 3), [], 0),
        (fenced(GOOD, 2, 2, 1), [], 1),
        (fenced(BY_TURNS, 1, 3, 2), [], 1),
        (fenced(BY_TURNS, 1, 2, 1), [], 1),
        # Two processes never have one token of a partition.
        (fenced([*BY_TURNS[:2], run(2, 2, pid=B)], 4, 4, 5), [], 1),
        (fenced(ELSEWHERE, 4, 3, 3), [], 0),
        # Two holders at once only after a lease ran out, if the later one has the higher token.
        (fenced(TOGETHER, 1, 1, 2, 2), [Disturbance(A, 1.5, 8)], 0),
        (fenced(TOGETHER, 1, 1, 1, 1), [Disturbance(A, 1.5, 8)], 2),
        (fenced(TOGETHER, 2, 2, 1, 1), [Disturbance(A, 1.5, 8)], 2),
        # A late handler has its lower token until its process knows that it slept.
        (fenced(LATE, 2, 2, 2, 1), [Disturbance(A, 1, 8)], 0),
        (fenced(LATE, 2, 2, 2, 1), [Disturbance(A, 1, 6.5)], 1),
        (fenced(LATE, 2, 2, 2, 2), [Disturbance(A, 1, 8)], 1),
    ],
)
def test_tokens(runs: list[Run], more: list[object], count: int) -> None:
    """A token that falls, or that two processes have, is UNFENCED."""
    assert found(runs, 3, *more).count(Anomaly.UNFENCED) == count


def test_two_holders_of_one_message_at_once() -> None:
    """A message without a group is one of its own: two handlers of it overlap all the same."""
    both = [run(0, 0, 6), run(0, 5, pid=B)]

    assert OVERLAPPED in found(fenced(both, 1, 2), 1)
    assert found(fenced(both, 1, 2), 1, Disturbance(A, 2)) == []


def test_higher_token_tells_that_it_knows() -> None:
    """A process that got a partition again has woken, so its runs count, whenever it is said to have woken."""
    back = [*WOKEN[:3], run(2, 8), run(3, 9)]

    assert found(fenced(back, 1, 1, 2, 3, 3), 4, Disturbance(A, 2, 99)) == []
    assert found(fenced(back, 1, 1, 2, 1, 1), 4, Disturbance(A, 2, 99)) == [LOST]


def test_lines_become_runs() -> None:
    """Begin and end are paired by process and offset, also when a process runs several at once."""
    lines = [
        "1.0 begin 7 g 0 0 2 10 1 5",
        "1.1 begin 7 h 4 1 2 11 3 5",
        "1.2 end 7 g 0 0 2 10 1 5",
        "1.3 begin 8 g 1 1 2 12 1 6",
        "1.4 end 7 h 4 1 2 11 3 5",
    ]

    assert parse(lines) == [
        Run(1.0, 1.2, 7, "g", 0, 2, 10, 1, 5),
        Run(1.1, 1.4, 7, "h", 4, 2, 11, 3, 5),
        Run(1.3, None, 8, "g", 1, 2, 12, 1, 6),
    ]
