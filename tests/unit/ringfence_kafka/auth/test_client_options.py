"""Certificate files that cannot be used, in one error that names them and without a prompt; and closed connections."""

import asyncio
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from reconcile.spark.source_options import kafka_options
from ringfence_kafka.auth import client_options, tls
from ringfence_kafka.auth.tls import confluent_options, ssl_context
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import ConfigurationError


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, str]:
    issued = trustme.CA().issue_cert("client.test")
    (tmp_path / "client.pem").write_bytes(issued.cert_chain_pems[0].bytes())
    (tmp_path / "client.key").write_bytes(issued.private_key_pem.bytes())
    return {"ssl_certfile": str(tmp_path / "client.pem"), "ssl_keyfile": str(tmp_path / "client.key")}


def _fault(**files: str) -> str:
    """Return the error that a person reads, which is the same for both kinds of client."""
    kafka = KafkaSettings.model_validate({"security_protocol": "SSL", **files})
    with pytest.raises(ConfigurationError) as aiokafka:
        client_options.client_options(kafka)
    with pytest.raises(ConfigurationError) as librdkafka:
        tls.confluent_options(kafka)

    assert str(aiokafka.value) == str(librdkafka.value)
    return str(aiokafka.value)


def test_authority_without_certificates(certificate: dict[str, str]) -> None:
    file = certificate["ssl_keyfile"]

    assert _fault(ssl_cafile=file) == (
        f"kafka.ssl_cafile = {file!r} cannot be used (no certificate or crl found): "
        "name a readable PEM file of certificates"
    )


def test_key_of_another_certificate(certificate: dict[str, str]) -> None:
    Path(certificate["ssl_keyfile"]).write_bytes(
        trustme.CA().issue_cert("other.test").private_key_pem.bytes()
    )

    fault = _fault(**certificate)
    assert "(key values mismatch): name readable PEM files of a certificate and of its own key" in fault
    for key, file in certificate.items():
        assert f"kafka.{key} = {file!r}" in fault


def test_encrypted_key(certificate: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A key with a passphrase: OpenSSL would ask on the terminal, and a worker would wait there for ever."""
    plain = KafkaSettings.model_validate({"security_protocol": "SSL", **certificate})
    assert client_options.client_options(plain)["ssl_context"].check_hostname
    file = Path(certificate["ssl_keyfile"])
    key = load_pem_private_key(file.read_bytes(), password=None)
    file.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"passphrase"))
    )

    assert f"kafka.ssl_keyfile = {str(file)!r} is encrypted: name the variable" in _fault(**certificate)
    monkeypatch.setenv("KEY_PASSWORD", "passphrase")
    kafka = KafkaSettings.model_validate(
        {"security_protocol": "SSL", **certificate, "ssl_key_password_env": "KEY_PASSWORD"}
    )
    options = confluent_options(kafka)
    assert ssl_context(kafka) is not None
    assert {options["ssl.certificate.location"], options["ssl.key.location"]} == set(certificate.values())
    assert options["ssl.key.password"] == "passphrase"
    assert "-----BEGIN PRIVATE KEY-----" in kafka_options(kafka)["kafka.ssl.keystore.key"]
    monkeypatch.setenv("KEY_PASSWORD", "another")
    with pytest.raises(
        ConfigurationError, match=r"cannot be decrypted with the password in \$KEY_PASSWORD: fix"
    ):
        ssl_context(kafka)
    with pytest.raises(ConfigurationError, match="that can be read with that password"):
        kafka_options(kafka)


async def test_a_connection_that_is_closed_at_once() -> None:
    """It suggests another protocol, but not after a connection that worked: a proxy without its broker closes connections too."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        kafka = KafkaSettings.model_validate({"bootstrap_servers": f"{host}:{port}"})
        refused = await client_options.refusal(kafka)

        assert "denies access: it closes the connection" in str(refused)
        assert await client_options.refusal(kafka, was_in=True) is None


async def test_a_host_without_an_address() -> None:
    """A host name that cannot be resolved is named, for a client that was not connected before."""
    kafka = KafkaSettings.model_validate({"bootstrap_servers": "broker.invalid:9092"})

    assert str(await client_options.refusal(kafka)).startswith("cannot resolve host 'broker.invalid' of")
    assert await client_options.refusal(kafka, was_in=True) is None
