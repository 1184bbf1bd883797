"""When a newcomer may take a lease, by a clock that the test turns."""

from dataclasses import replace

import pytest

from ringfence_client.progress.lease import LeaseWatch
from ringfence_client.progress.progress_record import DRAINING, HELD, RELEASED, Progress

TIMEOUT = 10.0
IDLE = 2.0
RUNNING = Progress(5, holder="other", state=HELD, token=3, delivered=7, running=2, beat=9)


def _watch() -> LeaseWatch:
    return LeaseWatch(TIMEOUT, IDLE)


@pytest.mark.parametrize("running", [0, 2])
def test_released(running: int) -> None:
    """A lease without a record, or a released one, is taken at once, also after one has waited for its holder."""
    watch = _watch()
    assert watch.silence_left(None, 0, 0) == 0
    assert watch.silence_left(RUNNING, 0, 0) > 0

    assert watch.silence_left(replace(RUNNING, state=RELEASED, running=running, beat=10), 1, 1) == 0


@pytest.mark.parametrize("state", [HELD, DRAINING])
@pytest.mark.parametrize(("running", "limit"), [(0, IDLE), (1, TIMEOUT), (10_000, TIMEOUT)])
def test_silence(state: str, running: int, limit: float) -> None:
    """A lease is free when it has not changed for the time-out, which is shorter without unacknowledged messages, draining or not."""
    lease, watch = replace(RUNNING, state=state, running=running), _watch()

    assert watch.silence_left(lease, 100, 100) == limit
    assert watch.silence_left(lease, 100 + limit - 0.5, 101 + limit) == 0.5
    assert watch.silence_left(lease, 100 + limit, 100 + limit) == 0


@pytest.mark.parametrize(
    "change",
    [{"beat": 10}, {"next": 6}, {"running": 1}, {"state": DRAINING}, {"holder": "third"}, {"token": 4}],
)
def test_any_change_is_a_sign_of_life(change: dict[str, object]) -> None:
    """Any change of the record starts the wait again, even a beat without news."""
    watch = _watch()
    watch.silence_left(RUNNING, 0, 0)
    watch.silence_left(RUNNING, 9, 9)

    assert watch.silence_left(replace(RUNNING, **change), 9.5, 9.5) == TIMEOUT  # type: ignore[arg-type]
    assert watch.silence_left(replace(RUNNING, **change), 19, 19) == 0.5  # type: ignore[arg-type]


def test_reading_that_takes_long() -> None:
    """Silence is counted from when the first reading knew its end to the beginning of the last, however long they take."""
    watch = _watch()

    assert watch.silence_left(RUNNING, 0, 30) == 40.0
    assert watch.since == 30
    assert watch.silence_left(RUNNING, 39, 60) == 1.0
    assert watch.silence_left(RUNNING, 40, 41) == 0
