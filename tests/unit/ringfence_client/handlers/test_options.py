"""Options of a consumer: errors state the whole range."""

from typing import Any

import pytest

from ringfence_client.handlers.options import ConsumerOptions


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"concurrency": 0}, "concurrency = 0: 1 to 10,000"),
        ({"prefetch": 10_001}, "prefetch = 10001: 1 to 10,000"),
        ({"batch": -1}, "batch = -1: 0 to 10,000"),
        ({"max_attempts": 0}, "max_attempts = 0: 1 or more"),
        ({"memory_max": 1}, "memory_max = 1: 16,777,216 bytes or more"),
        ({"retry_delay": 0.0001}, "retry_delay = 0.0001: 0.001 seconds or more"),
        ({"lease_timeout": 1.0}, "lease_timeout = 1.0: 3.0 seconds or more, because"),
        ({"lease_idle": 11.0}, "lease_idle = 11.0: from 0.2 seconds to lease_timeout = 10.0"),
    ],
)
def test_ranges(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        ConsumerOptions(**given)


def test_bounds_are_possible() -> None:
    """Both ends of a range are in it."""
    for number in (1, 10_000):
        assert ConsumerOptions(concurrency=number, prefetch=number, batch=number).concurrency == number
