"""Broker settings that are too tight for a configuration, and the advice in errors."""

from pathlib import Path

import pytest
from aiokafka.errors import InvalidSessionTimeoutError, InvalidTransactionTimeout, OffsetMetadataTooLargeError

from ringfence_kafka.admin.broker_settings import limit_faults
from ringfence_kafka.broker_limits import METADATA_LIMIT, SESSION_MAX, SESSION_MIN, TRANSACTION_LIMIT
from ringfence_kafka.config.load import load
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import named

DEFAULTS = {TRANSACTION_LIMIT: 900_000, SESSION_MIN: 6_000, SESSION_MAX: 1_800_000, METADATA_LIMIT: 4_096}
"""Kafka's own."""
ADDRESS = '[[addresses]]\nname = "orders"\n'
BRIDGE = '[[bridges]]\nname = "b"\nsource_topic = "s"\ntarget_address = "orders"\n'


def _settings(folder: Path, text: str) -> Settings:
    file = folder / "ringfence.toml"
    file.write_text('[kafka]\nbootstrap_servers = "127.0.0.1:9"\n' + text)
    return load(file)


def test_defaults_fit(tmp_path: Path) -> None:
    """Kafka's own settings keep nothing from its work, and neither do settings that nobody may see."""
    settings = _settings(tmp_path, ADDRESS + BRIDGE)
    assert limit_faults(settings, DEFAULTS) == []
    assert limit_faults(settings, {}) == []


@pytest.mark.parametrize(
    ("setting", "limit", "by_lanes", "by_bridges"),
    [
        (TRANSACTION_LIMIT, 59_999, 1, 0),
        (SESSION_MIN, 10_001, 1, 1),
        (SESSION_MAX, 9_999, 1, 1),
        (METADATA_LIMIT, 4_095, 0, 1),
    ],
)
def test_a_limit_that_is_too_tight(
    tmp_path: Path, setting: str, limit: int, by_lanes: int, by_bridges: int
) -> None:
    """A limit that is too tight gives a line for each affected part, with setting, value and need."""
    brokers = DEFAULTS | {setting: limit}
    lanes = limit_faults(_settings(tmp_path, ADDRESS), brokers)
    bridges = limit_faults(_settings(tmp_path, BRIDGE), brokers)
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
