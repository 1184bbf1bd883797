"""Options of Spark's Kafka source."""

from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from ringfence_kafka.auth import client_properties
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import ConfigurationError

_POLL_RECORDS: Final = 20_000
"""Records of one poll; each asks for the log's end, which takes most of the time with Kafka's 500."""
_FETCH_BYTES: Final = 8 * 2**20
_FETCH_WAIT_MS: Final = 10
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"


def kafka_options(kafka: KafkaSettings) -> dict[str, str]:
    """Return the options of the source. They include PEM texts, because executors do not have the files.

    Raises:
        OSError: A PEM file cannot be read.
        ConfigurationError: A private key cannot be read.
    """
    options = client_properties.for_java(kafka) | {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
        "client.id": kafka.client_id,
        "isolation.level": "read_committed",
        "max.poll.records": str(_POLL_RECORDS),
        "max.partition.fetch.bytes": str(_FETCH_BYTES),
        # At the end of a log, a broker by default delays a fetch for half a second, and with it Spark's next
        # request.
        "fetch.max.wait.ms": str(_FETCH_WAIT_MS),
    }
    if kafka.uses_ssl and kafka.ssl_cafile:
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.certificates"] = Path(kafka.ssl_cafile).read_text("utf-8")
    if kafka.uses_ssl and kafka.ssl_certfile:
        options["ssl.keystore.type"] = "PEM"
        options["ssl.keystore.certificate.chain"] = Path(kafka.ssl_certfile).read_text("utf-8")
        options["ssl.keystore.key"] = _pkcs8(Path(kafka.ssl_keyfile), kafka.secret("ssl_key_password"))
    if kafka.uses_tokens:
        options |= _tokens(kafka)
    elif kafka.uses_sasl:
        plain = kafka.sasl_mechanism == "PLAIN"
        module = "plain.PlainLoginModule" if plain else "scram.ScramLoginModule"
        options["sasl.mechanism"] = kafka.sasl_mechanism
        options["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required "
            f"username={_quoted(kafka.sasl_username)} password={_quoted(kafka.secret('sasl_password'))};"
        )
    return {f"kafka.{name}": value for name, value in options.items()}


def refuse_callback(kafka: KafkaSettings) -> None:
    """Raise ConfigurationError for tokens from a function, before Spark starts."""
    if kafka.uses_tokens and kafka.sasl_oauth_callback:
        raise ConfigurationError(
            f"kafka.sasl_oauth_callback = {kafka.sasl_oauth_callback!r}: Spark's Kafka client is Java's and cannot call it: use client "
            "credentials (sasl_oauth_token_url), or another login for this verb, with --command-config"
        )


def _tokens(kafka: KafkaSettings) -> dict[str, str]:
    refuse_callback(kafka)
    login = f"clientId={_quoted(kafka.sasl_oauth_client_id)} clientSecret={_quoted(kafka.secret('sasl_oauth_client_secret'))}"
    scope = f" scope={_quoted(kafka.sasl_oauth_scope)}" if kafka.sasl_oauth_scope else ""
    return {
        "sasl.mechanism": kafka.sasl_mechanism,
        "sasl.oauthbearer.token.endpoint.url": kafka.sasl_oauth_token_url,
        # RFC 6749 (2.3.1) requires this, and other clients do so. Java by default sends ID and secret
        # unencoded.
        "sasl.oauthbearer.header.urlencode": "true",
        "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required {login}{scope};",
    }


def _pkcs8(file: Path, password: str) -> str:
    """Return a private key in the format that Java reads; OpenSSL and Python read older formats too."""
    text = file.read_text("utf-8")
    if "-----BEGIN PRIVATE KEY-----" in text:
        return text
    try:
        key = serialization.load_pem_private_key(text.encode(), password.encode() or None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        how = "with that password" if password else "without a password"
        raise ConfigurationError(
            f"kafka.ssl_keyfile = {file}: not a private key that can be read {how} ({error}): "
            f"`openssl pkcs8 -topk8 -nocrypt -in {file}` makes one"
        ) from error
    kind, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, kind, plain).decode()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
