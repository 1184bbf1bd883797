"""How the benchmark judges runs and compares them."""

import pytest

from bench import startup
from bench.contenders.rdkafka_ring import Ring
from bench.contest import CONTENDERS, Outcome
from bench.job import Run, spread
from bench.measure import environment
from bench.startup import COPY, FORWARDED, RINGFENCE, STREAMS
from bench.table import ratios
from bench.topics import Committed
from bench.traffic import Plan
from bench.trickle import Trickle


def _run(
    contender: str, seconds: float = 1.0, outputs: int = 95, distinct: int = 95, out_of_order: int = 0
) -> Run:
    return Run(
        contender, measured=100, seconds=seconds, cpu_s=seconds / 2, broker_cpu_s=1.0, life_cpu_s=9.0,
        peak_rss_bytes=2**20, outputs=outputs, distinct_outputs=distinct, out_of_order=out_of_order,
    )  # fmt: skip


def _outcome(*rounds: tuple[Run, ...]) -> Outcome:
    expected = {RINGFENCE: 95, FORWARDED: 95, COPY: 100}
    return Outcome(
        Plan(100), Plan(10), expected, [{run.contender: run for run in round_} for round_ in rounds]
    )


@pytest.mark.parametrize(
    ("run", "exact"),
    [
        (_run(RINGFENCE), True),
        (_run(RINGFENCE, outputs=96), False),
        (_run(RINGFENCE, outputs=95, distinct=94), False),
        (_run(FORWARDED), True),
        (_run(FORWARDED, outputs=96), False),
        (_run(FORWARDED, out_of_order=1), False),
        (_run(COPY, outputs=100), True),
        (_run(COPY, outputs=100, distinct=100), False),
    ],
)
def test_exact_means_the_number_of_records_and_of_ids_and_their_order(run: Run, exact: bool) -> None:
    """A run is exact only by its records, its IDs and their order. One lost and one doubled record give the right number."""
    assert _outcome((run,)).exact(run.contender) == exact


@pytest.mark.parametrize(("outputs", "distinct", "exact"), [(90, 90, True), (91, 90, False), (90, 89, False)])
def test_exact_means_the_trickle_too(outputs: int, distinct: int, exact: bool) -> None:
    """A backlog that came out well says nothing of messages that came one by one."""
    outcome = _outcome((_run(RINGFENCE),))
    outcome.trickles[RINGFENCE] = Trickle(100, 0.1, 0.2, 0.3, 1.0, 1.0, outputs, distinct, 90, 90)

    assert outcome.exact(RINGFENCE) == exact


def test_a_peer_lets_no_resend_pass() -> None:
    """Only copies may let a resend pass; a contender with a ring is judged as Ringfence is."""
    outcome = _outcome((_run(STREAMS, outputs=100),))
    outcome.expected[STREAMS] = 95

    assert not outcome.exact(STREAMS)
    assert {*CONTENDERS.values()} == set(startup.PREPARES)


def test_a_ring_by_hand_forgets_the_oldest() -> None:
    """The ring of librdkafka's contender is bounded like Ringfence's, and is restored from slots in any order."""
    ring, restored = Ring(3), Ring(3)
    for number in range(5):
        ring.place(number, b"%d" % number)
    for number in (3, 4, 2):
        restored.place(number, b"%d" % number)

    assert ring.known == restored.known == {b"2", b"3", b"4"}
    assert ring.head == restored.head == 5


def test_ratios_compare_the_two_of_one_round() -> None:
    """A round in which one of them failed has no ratio."""
    outcome = _outcome((_run(RINGFENCE, 4.0), _run(COPY, 2.0)), (_run(FORWARDED, 8.0), _run(RINGFENCE, 1.0)))

    assert ratios(outcome, RINGFENCE, COPY) == {"messages/s": [0.5], "CPU s / million": [2.0]}
    assert ratios(outcome, FORWARDED, RINGFENCE) == {"messages/s": [0.125], "CPU s / million": [8.0]}
    assert ratios(outcome, FORWARDED, COPY) == {}


@pytest.mark.parametrize(
    ("committed", "complete"),
    [
        (Committed(100, (7, 0)), True),
        (Committed(100, (8, 1)), True),  # a commit may lie behind the markers
        (Committed(100, (6, 0)), False),
        (Committed(100, (6, 1)), False),  # one partition does not stand in for another
    ],
)
def test_what_was_forwarded_must_be_consumed_too(committed: Committed, complete: bool) -> None:
    """The input's last offset is committed while forwarded records still wait for their verdict."""
    assert committed.complete(100, lambda: [7, 0]) == complete


def test_the_end_of_the_forward_topic_is_asked_for_when_the_input_is_consumed() -> None:
    """The end of the forward topic is asked for only after the input is consumed.

    Before, it still grows, and a run would count as finished too early.
    """

    def too_early() -> list[int]:
        raise AssertionError

    assert not Committed(99, (7, 0)).complete(100, too_early)
    assert Committed(100).complete(100, list)


@pytest.mark.parametrize(
    ("values", "expected"), [([3, 1, 2], (1, 2, 3)), ([4, 1, 2, 3], (1, 2.5, 4)), ([7], (7, 7, 7))]
)
def test_spread(values: list[float], expected: tuple[float, float, float]) -> None:
    """A spread is the smallest, the median and the largest value."""
    assert spread(values) == expected


def test_settings_of_the_environment_do_not_reach_the_worker() -> None:
    """Settings in the environment do not reach the worker, which would use another cluster; other variables stay."""
    given = {
        "RINGFENCE_KAFKA__BOOTSTRAP_SERVERS": "elsewhere:9092",
        "RINGFENCE_CACHE": "kept",
        "PATH": "kept",
    }

    assert environment(given) == {"RINGFENCE_CACHE": "kept", "PATH": "kept"}
