from typing import Any

import pytest

from ringfence_kafka.config.durations import duration_text
from ringfence_kafka.config.load import validate
from ringfence_kafka.errors import ConfigurationError


def _value(section: str, key: str, value: object) -> Any:
    return getattr(getattr(validate({section: {key: value}}), section), key)


@pytest.mark.parametrize(
    ("section", "key", "given", "expected"),
    [
        ("address_defaults", "id_max_age", "500ms", 0.5),
        ("address_defaults", "id_max_age", "1.5h", 5_400),
        ("address_defaults", "id_max_age", "0s", 0),
        ("app", "latency_target_ms", "1s", 1_000),
        ("app", "latency_target_ms", 50, 50),
        ("reconcile", "keep_days", "48h", 2),
    ],
)
def test_text_and_numbers(section: str, key: str, given: object, expected: float) -> None:
    """Each duration key takes text, and a number in its own unit."""
    assert _value(section, key, given) == expected


@pytest.mark.parametrize("text", ["", "5", "h", "1 h", "1H", "-1h", "1h30", "1w", "٣s", "1e3s", ".5s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        validate({"address_defaults": {"id_max_age": text}})
    assert str(raised.value) == (
        f"settings: address_defaults.id_max_age = {text!r}: not a duration: write a number of seconds, or digits and units in "
        "quotes: '500ms', '30s', '5m', '1h', '7d', '1h30m'"
    )


@pytest.mark.parametrize(
    ("section", "key", "given", "expected"),
    [
        ("app", "session_timeout", "6500ms", "'6500ms': is 6.5 seconds: this key takes whole seconds"),
        ("app", "session_timeout", "5s", "5: must be 6 to 90 seconds"),
        (
            "address_defaults",
            "id_max_age",
            "1h1h",
            "'1h1h': a unit occurs twice: write each once, as in '2h'",
        ),
        ("app", "latency_target_ms", "soon", "'soon': not a duration: write a number of milliseconds, or "),
    ],
)
def test_a_key_keeps_its_bounds(section: str, key: str, given: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        validate({section: {key: given}})
    assert str(raised.value).startswith(f"settings: {section}.{key} = {expected}")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.5, "500ms"), (86_400, "1d"), (90_061, "1d1h1m1s"), (5_400, "1h30m")]
)
def test_as_text(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
    assert _value("address_defaults", "id_max_age", text) == seconds
