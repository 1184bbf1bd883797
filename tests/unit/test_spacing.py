"""How long brokers are left alone, by what transactions take."""

import random

import pytest

from app.worker.spacing import TOOK_FIRST_S, TOOK_MAX_S, TOOK_MIN_S, Spacing


def _settled(target_s: float, took_s: float, rounds: int = 500) -> Spacing:
    spacing = Spacing(target_s)
    for _ in range(rounds):
        spacing.took(took_s)
    return spacing


@pytest.mark.parametrize(("target_s", "took_s"), [(0.01, 0.004), (0.025, 0.01), (0.1, 0.02), (0.2, 0.02)])
def test_half_of_the_messages_are_committed_in_time(target_s: float, took_s: float) -> None:
    """They come at any moment of the wait, and then their transaction takes its time."""
    spacing = _settled(target_s, took_s)
    waits = random.Random(4)
    took = sorted(waits.uniform(0, spacing.wait_s) + took_s for _ in range(10_000))

    assert took[5_000] == pytest.approx(target_s, rel=0.1)
    assert took[-1] < 2 * target_s


@pytest.mark.parametrize("took_s", [0.01, 0.03, 0.3])
def test_the_more_there_is_to_do_the_less_often(took_s: float) -> None:
    """Where the target cannot be kept, haste would only make it worse: what waits together costs least."""
    assert _settled(0.01, took_s).wait_s == pytest.approx(took_s / 2, rel=0.1)


def test_what_health_shows() -> None:
    """In milliseconds, as the target is set."""
    assert Spacing(0.025).report() == {"latency_target_ms": 25.0, "batch_ms": 10.0, "fetch_wait_ms": 30.0}


def test_nothing_is_known_at_first() -> None:
    """A guess, that of a quiet machine."""
    assert Spacing(0.1).took_s == TOOK_FIRST_S


def test_one_that_took_a_minute() -> None:
    """Because its output was refused: the next ones are not spaced by it."""
    spacing = _settled(0.025, 0.01)
    before = spacing.wait_s
    spacing.took(60.0)

    assert spacing.wait_s == pytest.approx(before, rel=0.1)


def test_it_follows() -> None:
    """Half a second of traffic in four lanes is enough to find that everything takes four times as long, or as short."""
    spacing = _settled(0.025, 0.01)
    for took_s in (0.04, 0.01):
        for _ in range(40):
            spacing.took(took_s)

        assert spacing.took_s == pytest.approx(took_s, rel=0.15)


@pytest.mark.parametrize(("took_s", "bound"), [(0.0, TOOK_MIN_S), (100.0, TOOK_MAX_S)])
def test_bounds(took_s: float, bound: float) -> None:
    """However long it goes on: it finds back soon."""
    assert _settled(0.025, took_s).took_s == bound
