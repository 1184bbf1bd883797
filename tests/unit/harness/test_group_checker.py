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
    """Return the anomalies of one group of that size."""
    disturbances = [item for item in more if isinstance(item, Disturbance)]
    snapshots = [item for item in more if isinstance(item, Snapshot)]
    return [run.anomaly for run in judge(runs, {label: size}, disturbances, snapshots)]


GOOD = [run(0, 0), run(1, 1), run(2, 2)]


def test_good_log_has_no_findings() -> None:
    """A good log is in order, once, one run after another, also with alternating processes.

    The order of lines does not matter.
    """
    by_turns = [replace(run, pid=number % 2) for number, run in enumerate(GOOD)]

    assert found(GOOD) == []
    assert found(by_turns) == []
    assert found(GOOD[::-1]) == []


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_missing_message_is_lost(missing: int) -> None:
    """A message missing anywhere is lost; the next one is out of order too, unless the end is missing."""
    anomalies = found([run for run in GOOD if run.sequence != missing])

    assert Anomaly.LOST in anomalies
    assert (Anomaly.REORDERED in anomalies) == (missing < 2)


def test_run_without_end_is_lost() -> None:
    assert found([*GOOD[:2], run(2, 2, None)]) == [Anomaly.LOST]


def test_lower_number_is_repeated() -> None:
    assert found([run(0, 0), run(0, 0.5), run(1, 1), run(2, 2)]) == [Anomaly.REPEATED]
    assert Anomaly.REPEATED in found([*GOOD, run(1, 5), run(2, 6)])


def test_overlap_is_seen_and_touch_is_not() -> None:
    """Two handlers of a group at once are an overlap; a handler may begin at the moment at which another ends."""
    assert found([run(0, 0, 1.1), run(1, 1), run(2, 2)]) == [Anomaly.OVERLAPPED]
    assert found([run(0, 0, 1), run(1, 1, 2), run(2, 2)]) == []


def test_overlap_with_an_earlier_longer_one_is_seen() -> None:
    """An overlap with an earlier, longer run is reported, and not only with the run before."""
    anomalies = found([run(0, 0, 9), run(1, 1), run(2, 2)])

    assert anomalies == [Anomaly.OVERLAPPED] * 2


def test_what_was_never_sent_is_a_phantom() -> None:
    assert [item.anomaly for item in judge([*GOOD, run(0, 0, label="x")], {"g": 3})] == [Anomaly.PHANTOM]


def test_kill_excuses_what_its_process_ran() -> None:
    """A kill excuses runs that were under way, and finished runs that were not yet written.

    The group then continues in order.
    """
    killed = Disturbance(A, 1.2)
    running = [run(0, 0), run(1, 1, None), run(1, 5, pid=B), run(2, 6, pid=B)]
    further_back = [run(0, 0), run(1, 1, None), run(0, 4, pid=B), run(1, 5, pid=B), run(2, 6, pid=B)]

    assert found(running, 3, killed) == []
    assert found(further_back, 3, killed) == []
    assert found(running) == [Anomaly.REPEATED, Anomaly.OVERLAPPED, Anomaly.OVERLAPPED]


def test_kill_excuses_only_what_was_not_written_yet() -> None:
    """A kill excuses no run that ended early enough to be written, and every run that never ended."""
    again = [run(0, 0), run(0, 4, pid=B), run(1, 5, pid=B), run(2, 6, pid=B)]
    long = [run(0, 0, None), run(0, 4, pid=B), run(1, 5, pid=B), run(2, 6, pid=B)]

    assert found(again, 3, Disturbance(A, 2, unwritten=1.6)) == []
    assert found(again, 3, Disturbance(A, 2, unwritten=1.4)) == [Anomaly.REPEATED]
    assert found(long, 3, Disturbance(A, 2, unwritten=1.4)) == []


def test_kill_of_another_excuses_nothing() -> None:
    again = [run(0, 0), run(0, 2), run(1, 3), run(2, 4)]

    assert found(again, 3, Disturbance(B, 1)) == [Anomaly.REPEATED]
    assert found(again, 3, Disturbance(A, -1)) == [Anomaly.REPEATED]
    assert found(again, 3, Disturbance(A, 9)) == [Anomaly.REPEATED]
    assert found(again, 3, Disturbance(A, 1)) == []


def test_after_a_kill_nothing_is_left_out() -> None:
    """A group that goes back after a kill must repeat everything from there, because finished but unwritten runs are due again."""
    runs = [run(0, 0), run(1, 1), run(0, 4, pid=B), run(2, 5, pid=B)]

    assert found(runs, 3, Disturbance(A, 2)) == [Anomaly.REORDERED]


def test_going_back_past_another_process_is_repeated() -> None:
    """A run that a living process finished is written when its partition changes hands, so its repetition is reported."""
    runs = [run(0, 0, pid=B), run(1, 1), run(0, 4, pid=B), run(1, 5, pid=B), run(2, 6, pid=B)]

    assert found(runs, 3, Disturbance(A, 2)) == [Anomaly.REPEATED]


def test_what_was_written_is_not_done_again() -> None:
    """A written run must not be repeated, below the next offset or in a finished range, even after a kill.

    A run that began before the snapshot may end after it.
    """
    killed = Disturbance(A, 2)
    again = [run(0, 0), run(1, 1), run(0, 4, pid=B), run(1, 5, pid=B), run(2, 6, pid=B)]

    def at(time: float, written: Progress, partition: int = 0) -> Snapshot:
        return Snapshot(time, {partition: Written(partition, written)})

    assert found(again, 3, killed, at(2, Progress(1))) == [Anomaly.REDONE]
    assert found(again, 3, killed, at(2, Progress(0, [(10, 11)]))) == [Anomaly.REDONE]
    assert found(again, 3, killed, at(2, Progress(0, [(1, 10)]))) == []
    assert found(again, 3, killed, at(2, Progress(1), partition=1)) == []
    assert found(GOOD, 3, at(1.2, Progress(11))) == []
    assert found(GOOD, 3, at(0.9, Progress(11))) == [Anomaly.REDONE]


def test_frozen_process_counts_until_it_slept() -> None:
    """Runs that a frozen process began or ended after it woke do not count. They count again once it knows of its loss."""
    frozen = Disturbance(A, 1.2, 8)
    heir = [run(1, 5, pid=B), run(2, 6, pid=B)]
    before = [run(0, 0), run(1, 1, 7.5)]

    assert found([*before, *heir, run(2, 7.6)], 3, frozen) == []
    assert found([*before, *heir], 3, Disturbance(A, 0.7)) == [Anomaly.REPEATED, Anomaly.OVERLAPPED,
                                                              Anomaly.OVERLAPPED]  # fmt: skip
    assert found([*before, *heir, run(2, 8.1)], 3, frozen) == [Anomaly.REPEATED]


def fenced(runs: list[Run], *fences: int) -> list[Run]:
    return [replace(run, fence=fence) for run, fence in zip(runs, fences, strict=True)]


def test_tokens_that_rise_or_stay_are_good() -> None:
    """A holder keeps its token, and the next one has a higher token in whatever process, by any amount."""
    by_turns = [run(0, 0), run(1, 1, pid=B), run(2, 2)]

    assert found(fenced(GOOD, 1, 1, 1)) == []
    assert found(fenced(GOOD, 1, 2, 5)) == []
    assert found(fenced(by_turns, 1, 2, 3)) == []
    assert found(fenced(by_turns, 0, 0, 0)) == []


def test_token_that_falls_is_unfenced() -> None:
    """A falling token is UNFENCED, even within one process, and with another process in between."""
    by_turns = [run(0, 0), run(1, 1, pid=B), run(2, 2)]

    assert found(fenced(GOOD, 2, 2, 1)) == [Anomaly.UNFENCED]
    assert found(fenced(by_turns, 1, 3, 2)) == [Anomaly.UNFENCED]
    assert found(fenced(by_turns, 1, 2, 1)) == [Anomaly.UNFENCED]


def test_token_of_two_is_unfenced() -> None:
    """Two processes never have one token of a partition; tokens of other partitions do not matter."""
    by_turns = [run(0, 0), run(1, 1, pid=B), run(2, 2, pid=B)]
    elsewhere = [by_turns[0], *(replace(turn, partition=1) for turn in by_turns[1:])]

    assert found(fenced(by_turns, 4, 4, 5)) == [Anomaly.UNFENCED]
    assert found(fenced(elsewhere, 4, 4, 4)) == []
    assert found(fenced(elsewhere, 4, 3, 3)) == []


def test_two_holders_at_once() -> None:
    """Two holders at once are permitted only after a lease ran out, and if the later one has the higher token."""
    both = [run(0, 0), run(1, 1, 6), run(1, 5, pid=B), run(2, 7, pid=B)]
    frozen = Disturbance(A, 1.5, 8)

    assert found(fenced(both, 1, 1, 2, 2), 3, frozen) == []
    assert found(fenced(both, 1, 1, 1, 1), 3, frozen) == [Anomaly.UNFENCED] * 2
    assert found(fenced(both, 2, 2, 1, 1), 3, frozen) == [Anomaly.UNFENCED] * 2
    assert Anomaly.OVERLAPPED in found(fenced(both, 1, 1, 2, 2))


def test_two_holders_of_one_message_at_once() -> None:
    """A message without a group is one of its own: two handlers of it overlap all the same."""
    both = [run(0, 0, 6), run(0, 5, pid=B)]

    assert Anomaly.OVERLAPPED in found(fenced(both, 1, 2), 1)
    assert found(fenced(both, 1, 2), 1, Disturbance(A, 2)) == []


def test_late_handler_of_a_frozen_process_has_its_lower_token() -> None:
    """A late handler of a frozen process has its lower token until it knows that it slept.

    A token that another process has is not excused.
    """
    heir = [run(0, 5, pid=B), run(1, 6, pid=B), run(2, 9, pid=B)]
    late = run(0, 7)

    assert found(fenced([*heir, late], 2, 2, 2, 1), 3, Disturbance(A, 1, 8)) == []
    assert Anomaly.UNFENCED in found(fenced([*heir, late], 2, 2, 2, 1), 3, Disturbance(A, 1, 6.5))
    assert Anomaly.UNFENCED in found(fenced([*heir, late], 2, 2, 2, 2), 3, Disturbance(A, 1, 8))
    assert Anomaly.UNFENCED in found(fenced([*heir, late], 2, 2, 2, 3), 3, Disturbance(A, 1, 8))


def test_higher_token_tells_that_it_knows() -> None:
    """A process that got a partition again has woken, so its runs count from then on.

    The recorded time of its awakening does not matter.
    """
    back = [run(0, 0), run(1, 1, 7.5), run(1, 5, pid=B), run(2, 8), run(3, 9)]

    assert found(fenced(back, 1, 1, 2, 3, 3), 4, Disturbance(A, 2, 99)) == []
    assert found(fenced(back, 1, 1, 2, 1, 1), 4, Disturbance(A, 2, 99)) == [Anomaly.LOST]


def test_lease_is_waited_for() -> None:
    """A run in the partition of a killed process may begin only after its lease has run out."""
    runs = [run(0, 0), run(1, 1, None), run(1, 5, pid=B), run(2, 6, pid=B)]
    another = [*runs[:2], replace(runs[2], partition=1), replace(runs[3], partition=1)]
    at_rest = [run(0, 0), run(1, 5, pid=B), run(2, 6, pid=B)]

    assert found(runs, 3, Disturbance(A, 2, lease=3)) == []
    assert found(runs, 3, Disturbance(A, 2, lease=3.1)) == [Anomaly.EARLY]
    assert found(runs, 3, Disturbance(A, 2, lease=4.1)) == [Anomaly.EARLY] * 2
    assert found(another, 3, Disturbance(A, 2, lease=4.1)) == []
    assert found(at_rest, 3, Disturbance(A, 2, lease=4.1)) == []


def test_lease_of_a_frozen_process_is_waited_for() -> None:
    """A run that a frozen process ended after it woke counts as running when it froze, so its lease must be awaited."""
    runs = [run(0, 0), run(1, 1, 7.5), run(1, 5, pid=B), run(2, 6, pid=B)]

    assert found(runs, 3, Disturbance(A, 2, 8, lease=3)) == []
    assert found(runs, 3, Disturbance(A, 2, 8, lease=3.1)) == [Anomaly.EARLY]


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
