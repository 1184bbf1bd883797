"""Traffic of the bridge demo: resends, a failover, and messages of unknown outcome."""

import pytest

from app.demo.bridge.traffic import MESSAGES_MIN, UNSURE, Plan, distinct, to_origin, to_target
from ringfence_kafka.errors import ConfigurationError

EVERYTHING = Plan(MESSAGES_MIN, 7).all()


def test_seed() -> None:
    """The same seed gives the same traffic, and another seed another one."""
    assert Plan(MESSAGES_MIN, 7).all() == EVERYTHING
    assert Plan(MESSAGES_MIN, 8).all() != EVERYTHING


def test_resends() -> None:
    """About one message in ten has the bytes of an earlier one."""
    assert len(EVERYTHING) == MESSAGES_MIN
    assert distinct(EVERYTHING) == len(set(EVERYTHING))
    assert 0.88 * MESSAGES_MIN < distinct(EVERYTHING) < 0.92 * MESSAGES_MIN


def test_fail_over() -> None:
    """Every message goes to one cluster, in order, and the last ones for the origin go to both."""
    origin, target = list(to_origin(EVERYTHING)), list(to_target(EVERYTHING))

    assert len(origin) == 0.7 * MESSAGES_MIN
    assert target[:UNSURE] == origin[-UNSURE:]
    assert origin + target[UNSURE:] == EVERYTHING


def test_too_few() -> None:
    """Too few messages are refused, because the bridge would finish before it is killed."""
    with pytest.raises(
        ConfigurationError, match="100 messages are too few to strike among: use 20000 or more"
    ):
        Plan(100, 1)
