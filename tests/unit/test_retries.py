"""When a message is given up, and when everything slows down."""

import math

import pytest

from ringfence_client import ConsumerOptions
from ringfence_client.retries import (
    PROBE_FIRST_S,
    PROBE_MAX_S,
    RETRY_MAX_S,
    TRIPPING,
    Breaker,
    Failures,
    RetryPolicy,
)

MINUTE_MS = 60_000


def given_up_after(policy: RetryPolicy) -> tuple[int, float]:
    """Attempts and seconds until a message that always fails at once is given up."""
    now, attempts, failures = 0.0, 0, Failures(0, 0)
    while True:
        attempts += 1
        failures = Failures(attempts, failures.since_ms)
        if policy.exhausted(attempts, failures, round(now * 1000)):
            return attempts, now
        now += policy.delay(attempts)


def test_default_outlives_minutes() -> None:
    """Without a word of the user a message is tried for ten minutes, and then soon given up."""
    attempts, seconds = given_up_after(ConsumerOptions().policy)

    assert 600 <= seconds <= 600 + 2 * RETRY_MAX_S
    assert attempts < 30


@pytest.mark.parametrize("count", [1, 5])
def test_chosen_count_alone(count: int) -> None:
    """Who says how often means just that."""
    attempts, seconds = given_up_after(ConsumerOptions(max_attempts=count).policy)

    assert attempts == count
    assert seconds < 3


def test_count_and_time() -> None:
    """With both, neither is too few."""
    few, long = given_up_after(ConsumerOptions(max_attempts=1, retry_time=120.0).policy)
    many, short = given_up_after(ConsumerOptions(max_attempts=12, retry_time=1.0).policy)

    assert (few > 1, 120 <= long <= 120 + 1.2 * 60) == (True, True)
    assert (many, short > 60) == (12, True)


def test_clock_behind() -> None:
    """Who had it first has a clock that is ahead: where no time was asked for, none is waited for; where it was, it is."""
    failures = Failures(3, since_ms=1_000_000)

    assert RetryPolicy(3, 0.0).exhausted(3, failures, now_ms=5_000)
    assert not RetryPolicy(3, 60.0).exhausted(3, failures, now_ms=5_000)


def test_time_alone() -> None:
    """A time that is chosen is held with the usual count."""
    attempts, seconds = given_up_after(ConsumerOptions(retry_time=0.0).policy)

    assert (attempts, seconds < 3) == (5, True)


def test_what_failed_did_not_kill() -> None:
    """Restarts while a message waits for its next attempt do not make it one that kills its process."""
    policy = ConsumerOptions().policy
    failed = Failures(12, 0)

    assert not policy.died_of_it(12, failed)
    assert not policy.last_before_death(12, failed)
    assert policy.last_before_death(16, failed)
    assert policy.died_of_it(17, failed)
    assert policy.died_of_it(5, None)


def test_deaths_are_counted_apart() -> None:
    """Also where attempts alone count: what failed twice and then was in a process that died gets its third attempt."""
    policy = ConsumerOptions(max_attempts=3).policy

    assert not policy.died_of_it(3, Failures(2, 0))
    assert policy.died_of_it(5, Failures(2, 0))
    assert policy.last_before_death(4, Failures(2, 0))
    assert not policy.last_before_death(3, Failures(2, 0))


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"concurrency": 10_001},
        {"prefetch": 10_001},
        {"retry_time": -1.0},
        {"handler_timeout": -0.1},
        {"session_timeout": math.nan},
        {"drain_timeout": math.inf},
    ],
)
def test_impossible(options: dict[str, float]) -> None:
    """Said with the option's name."""
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} = "):
        ConsumerOptions(**options)  # type: ignore[arg-type]


# -- the breaker ----------------------------------------------------------------------------------------------------


def opened(concurrency: int = 8, now: float = 0.0) -> Breaker:
    """One to which everything has failed."""
    breaker = Breaker(concurrency)
    openings = [breaker.failed(each, "down", now) for each in range(TRIPPING)]

    assert openings == [*[False] * (TRIPPING - 1), True]
    assert breaker.open
    return breaker


def test_opens_when_everything_fails() -> None:
    """Then one attempt at a time is made, with a growing pause before it."""
    breaker = opened()
    now, pauses = 0.0, []
    for each in range(8):
        pauses.append(breaker.wait(now))

        assert not breaker.room(0, now)

        now += breaker.wait(now)

        assert breaker.room(0, now)
        assert not breaker.room(1, now)

        breaker.failed(f"again {each}", "still down", now)

    assert pauses[0] == PROBE_FIRST_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == PROBE_MAX_S
    assert breaker.reason == "still down"


def test_one_message_does_not_open_it() -> None:
    """However often a few fail while nothing else comes."""
    breaker = Breaker(8)
    for each in range(10 * TRIPPING):
        breaker.failed(each % (TRIPPING - 1), "poison", 0.0)

    assert not breaker.open
    assert breaker.room(7, 0.0)


def test_successes_between_keep_it_closed() -> None:
    """Where others succeed, those that fail are to blame and not what all depend on."""
    breaker = Breaker(8)
    for each in range(10 * TRIPPING):
        breaker.failed(each, "poison", 0.0)
        if each % (TRIPPING - 1) == 0:
            breaker.succeeded()

    assert not breaker.open


def test_closes_step_by_step() -> None:
    """Each success doubles what runs at once; a failure halves it; all of it means closed."""
    breaker = opened(concurrency=8, now=100.0)
    now = 101.0

    assert not breaker.succeeded()
    assert breaker.room(1, now)
    assert not breaker.room(2, now)

    assert not breaker.succeeded()
    assert breaker.room(3, now)

    breaker.failed("one", "now and then", now)

    assert not breaker.room(2, now)
    assert breaker.room(1, now)

    assert [breaker.succeeded(), breaker.succeeded()] == [False, True]
    assert not breaker.open
    assert breaker.room(100, now)


def test_one_handler() -> None:
    """With one at a time the first success closes it."""
    breaker = opened(concurrency=1)

    assert breaker.succeeded()
    assert not breaker.open


def test_switched_off() -> None:
    """Then nothing opens it."""
    breaker = Breaker(8, enabled=False)
    for each in range(10 * TRIPPING):
        breaker.failed(each, "down", 0.0)

    assert not breaker.open
