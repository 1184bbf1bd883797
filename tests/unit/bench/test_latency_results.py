"""The figures of the latency benchmark."""

import pytest

from bench.errors import BenchError
from bench.job import quantile
from bench.latency_results import Load
from bench.traffic import Plan


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 51), (0.99, 100), (0.999, 100), (1.0, 100)])
def test_quantile(share: float, expected: float) -> None:
    """A quantile is the least value with at least that share of the values at or below it."""
    assert quantile([float(index) for index in range(1, 101)], share) == expected


def test_quantile_of_nothing() -> None:
    """A run in which nothing came out has no figures."""
    with pytest.raises(BenchError, match="no message came out"):
        quantile([], 0.5)


def test_rings_that_forget_nothing() -> None:
    """A ring for forwarded messages forgets nothing, because a resend may come any number of IDs after its original."""
    plan = Plan(1_000_000)

    assert Load(5_000, 30.0, 0, plan).ring == plan.ring
    assert Load(5_000, 30.0, 0, Plan(0), "crc32").ring > 5_000 * 35
    assert Load(0, 30.0, 1_000_000, plan, "crc32").ring == plan.forwarded_ring
