"""When a failed message is tried again, and when it is given up."""

from ringfence_client import ConsumerOptions
from ringfence_client.handlers.retries import Failures, RetryPolicy


def test_default_outlives_minutes() -> None:
    """The default policy tries a message five times within ten minutes, soon at first."""
    policy, begun = ConsumerOptions().policy, [0.0]
    while (attempt := len(begun)) < policy.max_attempts:
        begun.append(begun[-1] + policy.delay(attempt, Failures(attempt, 0), round(begun[-1] * 1000)))

    assert len(begun) == 5
    assert begun[1] < 0.2
    assert 599.9 <= begun[-1] <= 720


def test_what_the_handler_asks_for() -> None:
    """The delay that a handler asks for is used, but the last attempt still waits for the retry time."""
    policy = RetryPolicy(4, 60.0)
    failures = Failures(1, since_ms=0)

    assert policy.delay(1, failures, 1_000, asked=7.0) == 7.0
    assert policy.delay(2, failures, 1_000, asked=-1.0) <= 0
    assert policy.delay(3, failures, 10_000, asked=7.0) == 50.0
    assert policy.delay(3, failures, 10_000, asked=70.0) == 70.0


def test_a_new_holder_keeps_the_retry_time() -> None:
    """The last attempt of a new holder waits for the retry time, and for no longer if its clock is behind."""
    policy = RetryPolicy(3, 60.0)
    failures = Failures(2, since_ms=1_000_000)

    assert policy.before_last(1, failures, 1_010_000) == 0
    assert policy.before_last(2, failures, 1_010_000) == 50
    assert policy.before_last(2, failures, 1_070_000) == 0
    assert policy.before_last(2, failures, 5_000) == 60
    assert RetryPolicy(3, 0.0).before_last(2, failures, 5_000) == 0


def test_what_failed_did_not_kill() -> None:
    """Restarts while a message waits do not make it one that kills its process, and deaths do not count as attempts."""
    policy = ConsumerOptions().policy
    failed = Failures(12, 0)

    assert not policy.died_of_it(12, failed)
    assert not policy.last_before_death(12, failed)
    assert policy.last_before_death(16, failed)
    assert policy.died_of_it(17, failed)
    assert policy.died_of_it(5, None)
    policy = ConsumerOptions(max_attempts=3).policy
    assert not policy.died_of_it(3, Failures(2, 0))
    assert policy.died_of_it(5, Failures(2, 0))
    assert policy.last_before_death(4, Failures(2, 0))
    assert not policy.last_before_death(3, Failures(2, 0))
