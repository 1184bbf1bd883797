"""When all handlers slow down because everything fails, and when not."""

import random

import pytest

from ringfence_client.dispatch.circuit_breaker import PROBE_FIRST_S, PROBE_MAX_S, RUN_MIN, CircuitBreaker


def warmed(share: float, concurrency: int = 8, seed: int = 1) -> CircuitBreaker:
    """One that has seen 2,000 first attempts, of which this share failed."""
    breaker, dice = CircuitBreaker(concurrency), random.Random(seed)
    for _ in range(2_000):
        if dice.random() < share:
            breaker.failed(first=True, reason="sick", now=0.0)
        else:
            breaker.succeeded(first=True)
    assert not breaker.open
    return breaker


def opened(concurrency: int = 8, now: float = 0.0) -> CircuitBreaker:
    """One to which everything has failed, after a healthy time."""
    breaker = warmed(0.0, concurrency)
    openings = [breaker.failed(first=True, reason="down", now=now) for _ in range(RUN_MIN)]
    assert openings == [*[False] * (RUN_MIN - 1), True]
    return breaker


def test_opens_when_everything_fails() -> None:
    """An open breaker makes one attempt at a time, after growing pauses."""
    breaker = opened()
    now, pauses = 0.0, []
    for _ in range(8):
        pauses.append(breaker.wait(now))
        assert not breaker.room(0, now)
        now += breaker.wait(now)
        assert breaker.room(0, now)
        assert not breaker.room(1, now)
        breaker.failed(first=True, reason="still down", now=now)

    assert pauses[0] == PROBE_FIRST_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == PROBE_MAX_S
    assert breaker.reason == "still down"


def test_what_began_before_it_opened_is_no_probe() -> None:
    """Attempts that were under way fail a moment later; they do not make the pause longer."""
    breaker = opened(now=10.0)
    for _ in range(20):
        breaker.failed(first=True, reason="down", now=10.1)
    assert breaker.wait(10.1) == pytest.approx(PROBE_FIRST_S - 0.1)


def test_a_cold_start_needs_more() -> None:
    """A cold breaker needs a few dozen failed first attempts. Retries do not open it, and nothing does if it is disabled."""
    for quiet, first in ((warmed(0.0), False), (CircuitBreaker(8, enabled=False), True)):
        assert not any(quiet.failed(first=first, reason="poison", now=0.0) for _ in range(1_000))
    breaker = CircuitBreaker(8)
    run = 0
    while not breaker.failed(first=True, reason="down", now=0.0):
        run += 1
    assert 40 < run < 60


@pytest.mark.parametrize(("share", "openings_max"), [(0.001, 0), (0.05, 0), (0.1, 0), (0.5, 0), (0.9, 1)])
def test_sick_messages_are_no_outage(share: float, openings_max: int) -> None:
    breaker, dice, openings = CircuitBreaker(10), random.Random(7), 0
    for _ in range(44_000):
        if dice.random() < share:
            openings += breaker.failed(first=True, reason="sick", now=0.0)
        else:
            breaker.succeeded(first=True)
    assert openings <= openings_max


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_an_outage_is_noticed_whatever_failed_before(share: float) -> None:
    """An outage is noticed whatever failed before. It takes longer if most messages fail anyway."""
    breaker = warmed(share)
    run = 1
    while not breaker.failed(first=True, reason="down", now=0.0):
        run += 1
    assert run <= (RUN_MIN if share <= 0.5 else 200)


def test_the_first_success_closes_it() -> None:
    """Giving up is allowed again; how many run at once doubles with each success, whatever fails between."""
    breaker = opened(concurrency=8)
    assert breaker.succeeded(first=True)
    assert not breaker.open
    assert breaker.limited
    assert breaker.room(1, 0.0)
    assert not breaker.room(2, 0.0)
    breaker.failed(first=True, reason="now and then", now=0.0)
    assert breaker.room(1, 0.0)
    assert [breaker.succeeded(first=True), breaker.succeeded(first=False)] == [False, False]
    assert not breaker.limited
    assert breaker.room(100, 0.0)
