import pytest
from aiokafka.errors import InvalidSessionTimeoutError, InvalidTransactionTimeout, OffsetMetadataTooLargeError

from ringfence_kafka.admin.broker_settings import limit_faults
from ringfence_kafka.broker_limits import METADATA_LIMIT, SESSION_MAX, SESSION_MIN, TRANSACTION_LIMIT
from ringfence_kafka.config.load import validate
from ringfence_kafka.errors import named

DEFAULTS = {TRANSACTION_LIMIT: 900_000, SESSION_MIN: 6_000, SESSION_MAX: 1_800_000, METADATA_LIMIT: 4_096}
"""Kafka's own."""
ADDRESS = validate({"addresses": [{"name": "orders"}]})
BRIDGE = validate(
    {"bridges": [{"name": "b", "source_topic": "s", "target_address": "orders", "target": {"bootstrap_servers": "h:1"}}]}
)  # fmt: skip


def test_defaults_fit() -> None:
    """Kafka's own settings keep nothing from its work, and neither do settings that nobody may see."""
    for settings in (ADDRESS, BRIDGE):
        assert limit_faults(settings, DEFAULTS) == limit_faults(settings, {}) == []


@pytest.mark.parametrize(
    ("setting", "limit", "by_lanes", "by_bridges"),
    [
        (TRANSACTION_LIMIT, 59_999, 1, 0),
        (SESSION_MIN, 10_001, 1, 1),
        (SESSION_MAX, 9_999, 1, 1),
        (METADATA_LIMIT, 4_095, 0, 1),
    ],
)
def test_a_limit_that_is_too_tight(setting: str, limit: int, by_lanes: int, by_bridges: int) -> None:
    """A limit that is too tight gives a line for each affected part, with setting, value and need."""
    lanes, bridges = (limit_faults(settings, DEFAULTS | {setting: limit}) for settings in (ADDRESS, BRIDGE))
    assert (len(lanes), len(bridges)) == (by_lanes, by_bridges)
    assert all(f"{setting} is {limit}" in lane for lane in (*lanes, *bridges))


def test_a_refusal_names_the_setting() -> None:
    """The broker's own word for it is its class; the line in the log has the remedy."""
    for error, setting in (
        (InvalidTransactionTimeout(), TRANSACTION_LIMIT),
        (InvalidSessionTimeoutError(), SESSION_MIN),
        (OffsetMetadataTooLargeError(), METADATA_LIMIT),
    ):
        assert setting in named(error)
        assert type(error).__name__ in named(error)
