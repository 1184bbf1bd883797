"""When a failed message is tried again, and when it is given up; delays that a user chooses."""

import itertools
from typing import Any

import pytest

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


def delays_of(**options: Any) -> list[float]:
    """Seconds between the attempts of a message that fails at once in each, without jitter."""
    policy = ConsumerOptions(retry_jitter=0.0, **options).policy
    now, delays = 0.0, list[float]()
    for attempt in itertools.count(1):
        if attempt >= policy.max_attempts:
            break
        delays.append(policy.delay(attempt, Failures(attempt, 0), round(now * 1000)))
        now += delays[-1]
    assert policy.seconds == pytest.approx(now, abs=0.01)
    return delays


def test_defaults_are_as_without_options() -> None:
    """0.1 s at first, and ten minutes in all; a maximum alone doubles up to a minute, with a fifth more or less."""
    assert delays_of() == pytest.approx([0.1, 1.78, 31.8, 566.3], rel=0.01)
    assert delays_of(max_attempts=13) == pytest.approx([min(60.0, 0.1 * 2**index) for index in range(12)])

    policy = ConsumerOptions(max_attempts=3).policy
    drawn = [policy.delay(1, Failures(1, 0), 0) for _ in range(1_000)]
    assert 0.08 <= min(drawn) < 0.085
    assert 0.115 < max(drawn) <= 0.12


def test_count_and_multiplier_decide_the_time() -> None:
    """The delays are as they were asked for, and no retry time lengthens the last one."""
    assert delays_of(max_attempts=4, retry_delay=2.0, retry_multiplier=3.0) == pytest.approx([2, 6, 18])
    assert delays_of(max_attempts=4, retry_delay=90.0) == [90, 90, 90]
    assert delays_of(max_attempts=5, retry_max=0.3) == pytest.approx([0.1, 0.2, 0.3, 0.3])
    assert delays_of(max_attempts=2, retry_time=30.0, retry_max=30.0) == [30]
    assert delays_of(max_attempts=3, retry_delay=1.0, retry_multiplier=2.0, retry_time=3.0) == [1, 2]


def test_time_and_delays_decide_the_count() -> None:
    """Attempts follow until the retry time is over, ten minutes unless it is given."""
    delays = delays_of(retry_multiplier=2.0, retry_max=30.0)
    assert delays == pytest.approx([min(30.0, 0.1 * 2**index) for index in range(28)])
    assert sum(delays[:-1]) < 600 <= sum(delays)

    assert delays_of(retry_delay=10.0, retry_multiplier=1.0, retry_time=30.0) == [10, 10, 10]
    assert delays_of(retry_delay=10.0, retry_multiplier=1.0, retry_time=31.0) == [10, 10, 10, 10]
    assert delays_of(retry_multiplier=2.0, retry_time=0.05) == pytest.approx([0.1])
    assert len(delays_of(retry_multiplier=2.0, retry_time=0.0)) == 4


def test_count_and_time_decide_the_multiplier() -> None:
    """The delays grow by as much as it takes, and no further than the longest one."""
    assert delays_of(retry_delay=2.0) == pytest.approx([2, 10.8, 58.4, 528.8], rel=0.5)
    assert sum(delays_of(retry_delay=2.0)) == pytest.approx(600)

    delays = delays_of(max_attempts=15, retry_time=600.0, retry_max=60.0)
    assert sum(delays) == pytest.approx(600)
    assert max(delays) == 60
    assert delays == sorted(delays)
    assert delays[0] == pytest.approx(0.1)


def test_last_attempt_after_the_retry_time() -> None:
    """The last attempt comes after the retry time, even if jitter shortens the delays."""
    policy = ConsumerOptions(retry_delay=10.0, retry_multiplier=1.0, retry_time=30.0, retry_jitter=1.0).policy

    assert policy.max_attempts == 4
    assert policy.delay(3, Failures(3, 0), 5_000) >= 25
    drawn = [policy.delay(1, Failures(1, 0), 0) for _ in range(1_000)]
    assert min(drawn) < 0.5
    assert 19.5 < max(drawn) <= 20


def test_beyond_the_maximum() -> None:
    """A delay never exceeds the longest one, however many follow while no message may be given up."""
    policy = ConsumerOptions(max_attempts=3, retry_multiplier=10.0, retry_max=5.0, retry_jitter=0.0).policy

    assert [policy.delay(index, Failures(index, 0), 0) for index in (1, 2, 3, 10**9)] == [0.1, 1, 5, 5]
    policy = ConsumerOptions(retry_jitter=0.0).policy
    assert policy.delay(10**9, Failures(1, 0), 0) == 60
