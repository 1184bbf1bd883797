"""Delays that a user chooses: what follows from others, and contradictions."""

import itertools
from typing import Any

import pytest

from ringfence_client import ConsumerOptions
from ringfence_client.handlers.retries import Failures


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
