"""What the demo of a bridge sends: resends, a failing over, and what its producer is unsure of."""

import pytest

from app.demo.bridge.traffic import MESSAGES_MIN, UNSURE, Plan, distinct, to_origin, to_target
from ringfence_kafka.errors import ConfigurationError

EVERYTHING = Plan(MESSAGES_MIN, 7).all()


def test_seed() -> None:
    """It reproduces the traffic; another one makes other traffic."""
    assert Plan(MESSAGES_MIN, 7).all() == EVERYTHING
    assert Plan(MESSAGES_MIN, 8).all() != EVERYTHING


def test_resends() -> None:
    """One in ten or so has the bytes of an earlier one."""
    assert len(EVERYTHING) == MESSAGES_MIN
    assert distinct(EVERYTHING) == len(set(EVERYTHING))
    assert 0.88 * MESSAGES_MIN < distinct(EVERYTHING) < 0.92 * MESSAGES_MIN


def test_fail_over() -> None:
    """All is sent to one or the other, in order, and the last to the origin to both."""
    origin, target = list(to_origin(EVERYTHING)), list(to_target(EVERYTHING))

    assert len(origin) == 0.7 * MESSAGES_MIN
    assert target[:UNSURE] == origin[-UNSURE:]
    assert origin + target[UNSURE:] == EVERYTHING


def test_too_few() -> None:
    """A bridge would be through before it is struck."""
    with pytest.raises(
        ConfigurationError, match="100 messages are too few to strike among: use 20000 or more"
    ):
        Plan(100, 1)
