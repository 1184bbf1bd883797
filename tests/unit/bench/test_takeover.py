"""How the bench of recovery reads logs and judges what came out."""

import signal

import pytest

from bench import worker_log
from bench.steady import Seen
from bench.takeover import End, Takeover, judge, longest_silence
from bench.worker_log import Event

AT = 1_000.0


def _log(*lines: str) -> list[Event]:
    """Lines as a worker writes them, a second apart, the first at 10:00:00.250."""
    return worker_log.events(
        "\n".join(
            f"2026-01-02 10:00:{second:02},250 INFO    ringfence.lane: {line}"
            for second, line in enumerate(lines)
        )
    )


def test_only_its_own_lines_count() -> None:
    """Libraries' lines and the lines of a trace are passed over; the moment has milliseconds."""
    found = worker_log.events(
        "2026-01-02 10:00:00,000 WARNING aiokafka.consumer: assigned 4 lanes: a-0\n"
        "Traceback: 2026-01-02\n"
        "2026-01-02 10:00:00,250 INFO    ringfence.worker: ready: 2 lanes open [RF-202]\n"
        "2026-01-02 10:00:01,500 WARNING ringfence.worker: not ready: waiting for a-0\n"
    )

    assert [item.text for item in found] == ["ready: 2 lanes open", "not ready: waiting for a-0"]
    assert found[1].moment - found[0].moment == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), None),
        (("assigned 2 lanes: a-0, a-1",), None),
        (("assigned 2 lanes: a-0, a-1", "ready: 2 lanes open"), {"a-0", "a-1"}),
        (("assigned 0 lanes: none", "ready: 0 lanes open"), set()),
        (("assigned 2 lanes: a-0, a-1", "ready: 2 lanes open", "rebalance: 2 lanes pause"), None),
        (("assigned 2 lanes: a-0, a-1", "ready: 2 lanes open", "not ready: waiting for a-0"), None),
        (("assigned 1 lanes: a-0", "ready: 1 lanes open", "assigned 2 lanes: a-0, a-1"), None),
        (
            ("assigned 1 lanes: a-0", "ready: 1 lanes open", "assigned 1 lanes: a-1", "ready: 1 lanes open"),
            {"a-1"},
        ),
    ],
)
def test_settled_is_ready_since_the_last_assignment(
    lines: tuple[str, ...], expected: set[str] | None
) -> None:
    """A worker in the middle of a rebalance is not settled, whatever it was before."""
    assert worker_log.settled(_log(*lines)) == expected


def test_what_the_log_says_after_a_moment() -> None:
    """A log is searched after a given moment: first and last line, openings and closings."""
    found = _log(
        "lane a-1 open: 7 changelog records restored in 0.10 s (RocksDB reused), ring 0 of 5, next offset 0",
        "lane a-1 closed at offset 30",
        "rebalance: 2 lanes pause",
        "lane a-1 open: 9 changelog records restored in 0.25 s (RocksDB new), ring 5 of 5, next offset 30",
        "rebalance: 2 lanes pause",
        "lane a-1 closed at offset 44",
    )
    after = found[1].moment + 0.5

    assert worker_log.first(found, "rebalance: ", after) == found[2].moment
    assert worker_log.last(found, "rebalance: ", after) == found[4].moment
    assert worker_log.first(found, "ready: ", after) is None
    assert worker_log.last(found, "rebalance: ", found[5].moment) is None
    assert worker_log.opened(found, after) == {"a-1": (found[3].moment, 9, 0.25, False)}
    assert worker_log.opened(found, found[4].moment) == {}
    assert worker_log.closed(found, after) == {"a-1": 44}


def _seen(partition: int, produced: float, seen: float, offset: int = 0) -> Seen:
    """Moments in seconds from the signal."""
    return Seen(partition, offset, AT + produced, AT + seen)


def test_a_killed_worker_accepts_nothing_that_was_produced_later() -> None:
    """A message that a killed worker accepted may be seen after its end, and does not count for the survivor."""
    end = End(signal.SIGKILL, AT, frozenset({0, 1}), {})

    assert not end.took_over(_seen(0, produced=-0.1, seen=9.0))
    assert end.took_over(_seen(0, produced=0.1, seen=9.0))
    assert not end.took_over(_seen(2, produced=0.1, seen=9.0))


def test_a_leaving_worker_goes_on_for_a_moment() -> None:
    """A message that a leaving worker accepted before it closed the lane is its own, even if produced after the signal."""
    end = End(signal.SIGTERM, AT, frozenset({0, 1}), {0: 50})

    assert not end.took_over(_seen(0, produced=0.1, seen=0.2, offset=49))
    assert end.took_over(_seen(0, produced=-0.1, seen=0.9, offset=50))
    assert not end.took_over(_seen(1, produced=0.1, seen=0.9, offset=99))


def _survivor() -> list[Event]:
    opened = "open: {} changelog records restored in {} s (RocksDB new), ring 5 of 5, next offset 0"
    return [
        Event(AT - 9, "rebalance: 4 lanes pause"),
        Event(AT + 3, "rebalance: 2 lanes pause"),
        Event(AT + 4, "assigned 4 lanes: a-0, a-1, a-2, a-3"),
        Event(AT + 5, f"lane a-0 {opened.format(7, '0.50')}"),
        Event(AT + 6, f"lane a-1 {opened.format(8, '0.25')}"),
        Event(AT + 5, f"lane a-2 {opened.format(1, '0.75')}"),
        Event(AT + 5, f"lane a-3 {opened.format(1, '0.10')}"),
    ]


def _all_seen() -> list[Seen]:
    before = [_seen(index, produced=-1.0, seen=1.0) for index in range(4)]
    backlog = [_seen(0, produced=0.5, seen=5.5), _seen(1, produced=0.5, seen=6.5)]
    return [*before, *backlog, *(_seen(index, produced=6.5, seen=7.0 + index) for index in range(4))]


def test_judgement() -> None:
    """Each phase is measured from the signal, to the first message of a lane and to the slowest lane."""
    found = judge(End(signal.SIGKILL, AT, frozenset({0, 1}), {}), _survivor(), _all_seen())

    assert found == Takeover(
        "SIGKILL", noticed_s=3.0, assigned_s=4.0, opened_s=6.0, restored_records=15, restore_s=0.5,
        first_s=5.5, all_s=6.5, own_standstill_s=9.0,
    )  # fmt: skip


@pytest.mark.parametrize("missing", range(4))
def test_no_judgement_before_all_lanes_deliver(missing: int) -> None:
    """A judgement needs messages of all lanes, including the survivor's own, whose silence is measured too."""
    seen = [item for item in _all_seen() if item.partition != missing]

    assert judge(End(signal.SIGKILL, AT, frozenset({0, 1}), {}), _survivor(), seen) is None


def test_no_judgement_on_a_backlog_of_the_last_opening() -> None:
    """A message from before the lane was opened says nothing of what it delivers now."""
    assert judge(End(signal.SIGKILL, AT, frozenset({0, 1}), {}), _survivor(), _all_seen()[:-1]) is None


def test_no_judgement_without_the_openings() -> None:
    """A judgement needs the openings, since the log lags behind what the reader has seen."""
    assert judge(End(signal.SIGKILL, AT, frozenset({0, 1}), {}), _survivor()[:-1], _all_seen()) is None


def test_silence_begins_with_the_signal() -> None:
    """Gaps are those of one lane each; what others deliver meanwhile does not fill them."""
    seen = [_seen(0, 0, -8.0), _seen(0, 0, 2.0), _seen(1, 0, 3.0), _seen(0, 0, 5.0), _seen(1, 0, 4.5)]

    assert longest_silence(seen, {0, 1}, AT) == 3.0
    assert longest_silence(seen, {0}, AT) == 3.0
    assert longest_silence(seen, set(), AT) == 0.0
