"""Which settings of security are refused: each error names key, value and way out, and no secret."""

from pathlib import Path
from typing import Any, Final

import pytest

from ringfence_kafka.config.load import load, validate
from ringfence_kafka.errors import ConfigurationError

SECRET: Final = "hunter2-and-more"
SASL: Final = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "ringfence",
    "sasl_password_env": "RINGFENCE_KAFKA_PASSWORD",
}


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_KAFKA_PASSWORD", SECRET)


@pytest.fixture
def pem(tmp_path: Path) -> str:
    """Return a file that is there; what it holds is looked at when it is used."""
    path = tmp_path / "some.pem"
    path.write_text("")
    return str(path)


def _fault(**kafka: Any) -> str:
    """Return the error for these settings. No error has the password."""
    with pytest.raises(ConfigurationError) as caught:
        validate({"kafka": kafka})
    assert SECRET not in str(caught.value)
    return str(caught.value).removeprefix("settings: ")


# -- what is valid ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "keys"),
    [
        ("SASL_PLAINTEXT", SASL | {"sasl_mechanism": "SCRAM-SHA-512"}),
        ("SASL_SSL", SASL),
        ("SSL", {}),
        ("SSL", dict.fromkeys(("ssl_cafile", "ssl_certfile", "ssl_keyfile"), __file__)),
    ],
)
def test_complete(protocol: str, keys: dict[str, str]) -> None:
    """A login is complete with mechanism, name and variable; over TLS the system's authorities are enough.

    A client certificate comes with its key.
    """
    kafka = validate({"kafka": keys | {"security_protocol": protocol}}).kafka

    assert kafka.uses_sasl == protocol.startswith("SASL")
    assert kafka.uses_ssl == protocol.endswith("SSL")
    assert not kafka.uses_sasl or kafka.sasl_password() == SECRET


def test_the_password_is_no_part_of_the_settings() -> None:
    """No representation of the settings contains the password."""
    settings = validate({"kafka": SASL})
    shown = (
        f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()} {vars(settings.kafka)}"
    )

    assert "RINGFENCE_KAFKA_PASSWORD" in shown
    assert SECRET not in shown


# -- what does not fit together -----------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["sasl_mechanism", "sasl_username", "sasl_password_env"])
def test_incomplete_login(missing: str) -> None:
    """A login without one of its three keys is refused."""
    given = {key: value for key, value in SASL.items() if key != missing}
    expected = f"kafka: security_protocol = 'SASL_SSL' needs {missing}: add them, or choose another protocol"

    assert _fault(**given) == expected


@pytest.mark.parametrize("key", ["sasl_mechanism", "sasl_username", "sasl_password_env"])
def test_login_that_nobody_asks_for(key: str) -> None:
    """A login key without SASL is refused, because it would silently do nothing."""
    expected = f"kafka: {key} = {SASL[key]!r} has no effect with security_protocol = 'SSL': remove it, or set the protocol"

    assert _fault(security_protocol="SSL", **{key: SASL[key]}) == expected


@pytest.mark.parametrize("key", ["ssl_cafile", "ssl_certfile", "ssl_keyfile"])
def test_certificates_without_tls(key: str, pem: str) -> None:
    """A certificate without TLS is refused, because it would only pretend to protect."""
    expected = f"kafka: {key} = {pem!r} has no effect with security_protocol = 'SASL_PLAINTEXT': "

    assert _fault(**SASL | {"security_protocol": "SASL_PLAINTEXT", key: pem}).startswith(expected)


@pytest.mark.parametrize(("key", "other"), [("ssl_certfile", "ssl_keyfile"), ("ssl_keyfile", "ssl_certfile")])
def test_half_a_client_certificate(key: str, other: str, pem: str) -> None:
    """A certificate without its key, or a key without its certificate, is refused."""
    expected = f"kafka: {key} = {pem!r} needs {other}: set both or neither"

    assert _fault(security_protocol="SSL", **{key: pem}) == expected


def test_file_that_is_not_there() -> None:
    """A file that does not exist is named with its key."""
    expected = "kafka: ssl_cafile = '/nowhere/ca.pem': no such file: name a PEM file"
    nothing = "kafka: ssl_cafile = '/dev/null': not a regular file: name a PEM file"

    assert _fault(security_protocol="SSL", ssl_cafile="/nowhere/ca.pem") == expected
    assert _fault(security_protocol="SSL", ssl_cafile="/dev/null") == nothing


# -- secrets ------------------------------------------------------------------------------------------------


def test_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password variable that is not set, or is empty, is named."""
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
    """A password in place of its variable's name does not appear in the error."""
    fault = _fault(**SASL | {"security_protocol": protocol, "sasl_password_env": SECRET})

    assert "sasl_password_env = (hidden: may be the password itself)" in fault


@pytest.mark.parametrize("key", ["sasl_password", "ssl_key_passphrase"])
def test_password_in_the_file(key: str) -> None:
    """A password in the file is refused, and the error does not repeat it."""
    assert _fault(**SASL, **{key: SECRET}).startswith(f"kafka.{key} = '(hidden)': unknown key: ")


@pytest.mark.parametrize("variable", ["RINGFENCE_PASSWORD__KAFKA", "RINGFENCE_KAFKA__SASL_PASSWORD"])
def test_password_in_a_variable_that_is_no_setting(tmp_path: Path, variable: str) -> None:
    """A variable with the prefix that names no setting is refused without its value."""
    file = tmp_path / "ringfence.toml"
    file.write_text("")

    with pytest.raises(ConfigurationError) as caught:
        load(file, {variable: SECRET})

    assert variable in str(caught.value)
    assert SECRET not in str(caught.value)
