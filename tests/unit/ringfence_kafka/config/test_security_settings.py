"""Which settings of security are refused: each error names key, value and way out, and no secret."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from ringfence_kafka.config.load import load, validate
from ringfence_kafka.errors import ConfigurationError

SECRET: Final = "hunter2-and-more"
LOGIN: Final = {
    "sasl_mechanism": "PLAIN",
    "sasl_username": "ringfence",
    "sasl_password_env": "RINGFENCE_KAFKA_PASSWORD",
}
SASL: Final = LOGIN | {"security_protocol": "SASL_SSL"}
FILES: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_KAFKA_PASSWORD", SECRET)


def _fault(**kafka: Any) -> str:
    """Return the error for these settings. No error has the password."""
    with pytest.raises(ConfigurationError) as caught:
        validate({"kafka": kafka})
    assert SECRET not in str(caught.value)
    return str(caught.value).removeprefix("settings: ")


@pytest.mark.parametrize(
    ("protocol", "keys"),
    [
        ("SASL_PLAINTEXT", SASL | {"sasl_mechanism": "SCRAM-SHA-512"}),
        ("SASL_SSL", SASL),
        ("SSL", {}),
        ("SSL", dict.fromkeys(FILES, __file__)),
    ],
)
def test_complete(protocol: str, keys: dict[str, str]) -> None:
    """A login is complete with mechanism, name and variable, a certificate with its key; TLS alone needs no file."""
    kafka = validate({"kafka": keys | {"security_protocol": protocol}}).kafka

    assert kafka.uses_sasl == protocol.startswith("SASL")
    assert kafka.uses_ssl == protocol.endswith("SSL")
    assert not kafka.uses_sasl or kafka.secret("sasl_password") == SECRET


def test_the_password_is_no_part_of_the_settings() -> None:
    settings = validate({"kafka": SASL})
    shown = (
        f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()} {vars(settings.kafka)}"
    )

    assert "RINGFENCE_KAFKA_PASSWORD" in shown
    assert SECRET not in shown


def _misfits() -> Iterator[tuple[dict[str, str], str]]:
    plain, tls = SASL | {"security_protocol": "SASL_PLAINTEXT"}, {"security_protocol": "SSL"}
    no_effect, remedy = "has no effect with security_protocol", "remove it, or set the protocol"
    for key, value in LOGIN.items():
        half = {other: text for other, text in SASL.items() if other != key}
        yield half, f"security_protocol = 'SASL_SSL' needs {key}: add them, or choose another protocol"
        yield tls | {key: value}, f"{key} = {value!r} {no_effect} = 'SSL': {remedy}"
    for key in FILES:
        yield plain | {key: __file__}, f"{key} = {__file__!r} {no_effect} = 'SASL_PLAINTEXT': {remedy}"
    for key, other in (FILES[1:], FILES[:0:-1]):
        yield tls | {key: __file__}, f"{key} = {__file__!r} needs {other}: set both or neither"
    for file, fault in (("/nowhere/ca.pem", "no such file"), ("/dev/null", "not a regular file")):
        yield tls | {"ssl_cafile": file}, f"ssl_cafile = {file!r}: {fault}: name a PEM file"


@pytest.mark.parametrize(("keys", "expected"), list(_misfits()))
def test_what_does_not_fit_together(keys: dict[str, str], expected: str) -> None:
    """Half a login or certificate is refused, and so is one without effect, because it would only pretend to protect."""
    assert _fault(**keys) == f"kafka: {expected}"


def test_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = (
        "kafka: sasl_password_env = 'RINGFENCE_KAFKA_PASSWORD': that variable is not set: "
        "export it, or with systemd write NAME=value into the unit's EnvironmentFile"
    )
    monkeypatch.setenv("RINGFENCE_KAFKA_PASSWORD", "")

    assert _fault(**SASL) == expected
    monkeypatch.delenv("RINGFENCE_KAFKA_PASSWORD")
    assert _fault(**SASL) == expected


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL"])
def test_password_in_place_of_the_variable(protocol: str) -> None:
    fault = _fault(**SASL | {"security_protocol": protocol, "sasl_password_env": SECRET})

    assert "sasl_password_env = (hidden: may be the password itself)" in fault


def test_password_in_the_file() -> None:
    for key in ("sasl_password", "ssl_key_passphrase"):
        assert _fault(**SASL, **{key: SECRET}).startswith(f"kafka.{key} = '(hidden)': unknown key: ")


@pytest.mark.parametrize("variable", ["RINGFENCE_PASSWORD__KAFKA", "RINGFENCE_KAFKA__SASL_PASSWORD"])
def test_password_in_a_variable_that_is_no_setting(tmp_path: Path, variable: str) -> None:
    file = tmp_path / "ringfence.toml"
    file.write_text("")

    with pytest.raises(ConfigurationError) as caught:
        load(file, {variable: SECRET})

    assert variable in str(caught.value)
    assert SECRET not in str(caught.value)
