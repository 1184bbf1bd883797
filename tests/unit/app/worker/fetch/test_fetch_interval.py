import pytest

from app.worker.fetch.fetch_interval import TOOK_MAX_S, TOOK_MIN_S, FetchInterval


def _settled(target_s: float, took_s: float) -> FetchInterval:
    spacing = FetchInterval(target_s)
    for _ in range(500):
        spacing.took(took_s)
    return spacing


def test_the_more_there_is_to_do_the_less_often() -> None:
    """A longer fetch lengthens the wait, because haste would cost more than records that wait together.

    A transaction that took a minute, because its output was refused, does not space the next ones.
    """
    for took_s in (0.01, 0.03, 0.3):
        assert _settled(0.01, took_s).wait_s == pytest.approx(took_s / 2, rel=0.1)
    spacing = _settled(0.025, 0.01)
    before = spacing.wait_s
    spacing.took(60.0)

    assert spacing.wait_s == pytest.approx(before, rel=0.1)
    assert _settled(0.025, 100.0).took_s == TOOK_MAX_S
    assert _settled(0.025, 0.0).took_s == TOOK_MIN_S


def _lanes(spacing: FetchInterval, lanes: int, seconds: float = 20.0, share: float = 0.0) -> float:
    """Return the share of a core that lanes use in the end, with a CPU millisecond each, beside ``share`` of it for other work."""
    cpu = now = 0.0
    looks = []
    while now < seconds:
        work = lanes * 0.001
        passed = max(spacing.wait_s + 0.003, work)
        cpu, now = cpu + work + share * passed, now + passed
        spacing.took(work / 2 + 0.006)
        spacing.record_cpu(cpu, now)
        looks.append((cpu, now))
    half = looks[len(looks) // 2]
    return (cpu - half[0]) / (now - half[1])


def test_many_lanes_leave_half_of_a_core() -> None:
    """Each lane has a batch seldom enough to be worth its transaction. A short target may use more of a core, but never all."""
    for target_s, lanes, busy in (
        (0.025, 4, 0.5),
        (0.025, 64, 0.5),
        (0.005, 16, 0.9),
        (0.016, 16, 0.625),
        (1.0, 16, 0.5),
    ):
        spacing = FetchInterval(target_s)
        used = _lanes(spacing, lanes)

        assert spacing.busy == pytest.approx(busy)
        assert used < busy * 1.15
        if lanes <= 4:
            assert spacing.wait_s == pytest.approx(2 * (target_s - spacing.took_s))


def test_busy_with_something_else() -> None:
    """Other work in the process lengthens the wait up to a maximum, and no longer than it is of use."""
    spacing = FetchInterval(0.025)
    _lanes(spacing, 4, share=0.6)
    most = spacing.wait_s
    _lanes(spacing, 4, seconds=3.0)

    assert most == pytest.approx(4 * 0.025 + spacing.took_s, rel=0.1)
    assert spacing.wait_s == pytest.approx(2 * (0.025 - spacing.took_s))
