"""Which attempts count as deaths of a process, and which do not because it lives."""

from ringfence_client.handlers.retries import Failures
from ringfence_client.progress.progress_record import HELD, Progress
from ringfence_client.progress.resume_offset import survived, unrecorded

BEFORE = Progress(0, attempts={1: 3, 2: 1, 3: 2}, failures={1: Failures(1, 0), 3: Failures(2, 0)}, state=HELD)
"""Message 1 outlived two processes, message 2 one."""


def test_attempts_of_a_process_that_lives_are_forgotten() -> None:
    """Earlier deaths and all failures stay; what was begun and did not fail since counts no more, and nothing is suspected."""
    attempts = {1: 4, 2: 3, 3: 4, 4: 1}
    failures = {**BEFORE.failures, 2: Failures(1, 0), 3: Failures(3, 0)}
    later = Progress(0, attempts=attempts, failures=failures, state=HELD)

    assert unrecorded(BEFORE) == {1: 2, 2: 1}
    found = survived(later, unrecorded(BEFORE))

    assert found.attempts == {1: 3, 2: 2, 3: 3}
    assert unrecorded(found) == unrecorded(BEFORE)
    assert found.failures == later.failures
    assert found.released
