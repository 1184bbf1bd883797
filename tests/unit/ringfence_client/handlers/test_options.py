"""Options of a consumer: errors state the whole range, the reason, or the way out."""

import asyncio
import math
from typing import Any

import pytest

from ringfence_client import ConsumerOptions, Reject


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"concurrency": 10_001}, "concurrency = 10001: 1 to 10,000"),
        ({"max_attempts": 0}, "max_attempts = 0: 1 or more"),
        ({"memory_max": 1}, "memory_max = 1: 16,777,216 bytes or more"),
        ({"handler_timeout": -0.1}, "handler_timeout = -0.1: 0 seconds or more"),
        ({"drain_timeout": math.inf}, "drain_timeout = inf: a finite number of seconds"),
        ({"retry_delay": 0.0001}, "retry_delay = 0.0001: 0.001 seconds or more"),
        ({"lease_timeout": 1.0}, "lease_timeout = 1.0: 3.0 seconds or more, because"),
        ({"lease_idle": 11.0}, "lease_idle = 11.0: from 0.2 seconds to lease_timeout = 10.0"),
        ({"retry_max": 0.05}, "retry_max = 0.05: less than the first delay, retry_delay = 0.1"),
        ({"retry_multiplier": 0.9}, "retry_multiplier = 0.9: "),
        ({"retry_jitter": 1.1}, "retry_jitter = 1.1: a fraction"),
        ({"max_attempts": 1, "retry_time": 120.0}, "retry_time = 120: has no effect with max_attempts = 1"),
        (
            {"max_attempts": 5, "retry_time": 600.0, "retry_multiplier": 2.0},
            "retry_multiplier = 2: the delays between max_attempts = 5, of at most 60 s each, take 1.5 s, less than retry_time = 600: leave out",
        ),
        (
            {"max_attempts": 5, "retry_time": 600.0, "retry_max": 60.0},
            "retry_max = 60: the delays between max_attempts = 5 take 180.1 s at most, less than retry_time = 600: leave out",
        ),
        (
            {"retry_delay": 0.001, "retry_multiplier": 1.0},
            "retry_time = 600: more than 10,000 attempts fit into it with retry_delay = 0.001",
        ),
        ({"reject_on": Exception}, "reject_on = .*: a tuple of exception classes"),
        ({"reject_on": (Exception,)}, "reject_on = Exception: every failed attempt would make a dead letter"),
        ({"reject_on": (asyncio.CancelledError,)}, "reject_on = CancelledError: it ends tasks or processes"),
        ({"reject_on": (KeyError, Reject)}, "reject_on = Reject: a handler raises it to decide"),
        ({"reject_on": (StopIteration,)}, "reject_on = StopIteration: Python makes it a RuntimeError"),
        ({"reject_on": (int,)}, "reject_on = int: this is no class of exceptions"),
    ],
)
def test_refused(given: dict[str, Any], said: str) -> None:
    """Values out of range, options that contradict each other, and exceptions that say nothing of a message are refused."""
    with pytest.raises(ValueError, match=f"^{said}"):
        ConsumerOptions(**given)


def test_bounds_are_possible() -> None:
    for number in (1, 10_000):
        assert ConsumerOptions(concurrency=number, prefetch=number, batch=number).concurrency == number
