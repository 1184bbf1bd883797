import random
from collections.abc import Callable

import pytest

from ringfence_kafka.producer.marker_delay import FIRST_S, MOST_S, MarkerDelay

BACK_OFF_S = 0.02
"""The broker's pause before it asks the coordinator again."""
SLACK_S = 0.0005
"""Timers come late."""


def _run(
    markers_s: Callable[[], float], write_s: float, count: int = 2_000
) -> tuple[MarkerDelay, float, float]:
    """Transactions one after the other: the gap in the end, the share of refused ones, seconds for each."""
    gap, refused, passed = MarkerDelay(), 0, 0.0
    for number in range(count):
        since = gap.seconds + SLACK_S if number else 10.0
        in_vain = since < markers_s()
        took = write_s + BACK_OFF_S * in_vain
        gap.wrote(took, since)
        if number >= count // 2:
            refused += in_vain
            passed += since + took
    return gap, refused / (count // 2), passed / (count // 2)


@pytest.mark.parametrize("markers_ms", [1, 3, 10])
def test_it_settles_where_markers_are_written(markers_ms: int) -> None:
    """Few writes are refused whatever time markers take, and transactions are quicker than without a wait."""
    dice = random.Random(markers_ms)
    usual = markers_ms / 1000
    gap, refused, each = _run(lambda: usual * dice.uniform(0.8, 1.2), 0.002)

    assert usual * 0.8 < gap.seconds + SLACK_S < usual * 1.6
    assert refused < 0.1
    assert each < 0.002 + BACK_OFF_S


def test_one_that_is_slow_for_another_reason() -> None:
    """A write that was slow for another reason is soon forgotten, even after a row of them."""
    gap = MarkerDelay()
    gap.wrote(0.001, 10.0)
    gap.wrote(0.1, 0.014)
    after_one = gap.seconds
    for _ in range(20):
        gap.wrote(0.1, gap.seconds + SLACK_S)
    after_many = gap.seconds
    for _ in range(150):
        gap.wrote(0.001, gap.seconds + SLACK_S)

    assert after_one < 2 * FIRST_S
    assert after_many == MOST_S
    assert gap.seconds < FIRST_S
