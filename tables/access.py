"""Getting in: what each kind of client is told about security, and why a broker refuses us.

The password is read from the environment when a client is made, and is kept by that client alone.
"""

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any, Final

from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError, SaslAuthenticationFailed, UnsupportedSaslMechanismError
from aiokafka.protocol.metadata import MetadataRequest

from conf.errors import BrokerUnavailableError, ConfigurationError
from conf.settings import KafkaSettings

REQUEST_TIMEOUT_MS: Final = 10_000
RETRY_BACKOFF_MS: Final = 40
PROBE_LIMIT_S: Final = 5.0
"""For asking a broker why; a person waits."""


def client_options(kafka: KafkaSettings) -> dict[str, Any]:
    """Options that every aiokafka client takes: where the cluster is and how to get in."""
    options: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in kafka.bootstrap_servers.split(",")],
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        "retry_backoff_ms": RETRY_BACKOFF_MS,
        "security_protocol": kafka.security_protocol,
    }
    if kafka.uses_ssl:
        options["ssl_context"] = ssl_context(kafka)
    if kafka.uses_sasl:
        options["sasl_mechanism"] = kafka.sasl_mechanism
        options["sasl_plain_username"] = kafka.sasl_username
        options["sasl_plain_password"] = kafka.sasl_password()
    return options


def ssl_context(kafka: KafkaSettings) -> ssl.SSLContext:
    """Verifies the brokers' certificates and host names; presents the client's where one is configured.

    Raises:
        ConfigurationError: a file does not hold what it should.
    """
    try:
        context = ssl.create_default_context(cafile=kafka.ssl_cafile or None)
    except OSError as error:
        raise ConfigurationError(
            f"kafka.ssl_cafile = {kafka.ssl_cafile!r} cannot be used ({_fault(error)}): "
            "name a readable PEM file of certificates"
        ) from error
    if kafka.ssl_certfile:
        try:
            context.load_cert_chain(kafka.ssl_certfile, kafka.ssl_keyfile, _no_passphrase)
        except OSError as error:
            raise ConfigurationError(
                f"kafka.ssl_certfile = {kafka.ssl_certfile!r}, kafka.ssl_keyfile = {kafka.ssl_keyfile!r} cannot be "
                f"used ({_fault(error)}): name readable PEM files of a certificate and of its own key"
            ) from error
        except _EncryptedKeyError as error:
            raise ConfigurationError(
                f"kafka.ssl_keyfile = {kafka.ssl_keyfile!r} is encrypted: decrypt it into a file that only this user "
                "can read (openssl pkey -in … -out …)"
            ) from error
    return context


class _EncryptedKeyError(Exception):
    """A key asks for a passphrase."""


def _no_passphrase() -> str:
    """In place of OpenSSL's own question on the terminal, for which a worker would wait forever."""
    raise _EncryptedKeyError


def _fault(error: OSError) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return str(reason or error).replace("_", " ").lower()


def confluent_options(kafka: KafkaSettings) -> dict[str, Any]:
    """The same for librdkafka's clients. Raises as :func:`ssl_context` does."""
    options: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
        "log_level": 0,
    }
    if kafka.uses_ssl:
        ssl_context(kafka)  # librdkafka's own words on a faulty file name neither key nor way out
        files = {
            "ssl.ca.location": kafka.ssl_cafile,
            "ssl.certificate.location": kafka.ssl_certfile,
            "ssl.key.location": kafka.ssl_keyfile,
        }
        options |= {key: value for key, value in files.items() if value}
    if kafka.uses_sasl:
        options["sasl.mechanism"] = kafka.sasl_mechanism
        options["sasl.username"] = kafka.sasl_username
        options["sasl.password"] = kafka.sasl_password()
    return options


async def refusal(kafka: KafkaSettings) -> BrokerUnavailableError | None:
    """Try each server once more; the first that refuses us tells why.

    Kafka's clients themselves say only that no connection came about.

    Returns:
        The error with the way out; None if nobody was there to refuse.
    """
    options = client_options(kafka)
    del options["retry_backoff_ms"]
    for server in options.pop("bootstrap_servers"):
        host, _, port = server.rpartition(":")
        try:
            async with asyncio.timeout(PROBE_LIMIT_S):
                connection = await create_conn(host, int(port), **options)
                try:
                    await connection.send(
                        MetadataRequest([])
                    )  # before a login a broker tells its versions only
                finally:
                    connection.close()
        except (KafkaError, OSError, TimeoutError) as error:
            if reason := _reason(kafka, error):
                return BrokerUnavailableError(f"the broker at {server} does not let us in: {reason}")
    return None


def _reason(kafka: KafkaSettings, error: BaseException) -> str | None:
    """Fault and way out of one failed connection; None if it says nothing about access."""
    for each in _causes(error):
        match each:
            case SaslAuthenticationFailed():
                return (
                    f"it refuses the password of kafka.sasl_username = {kafka.sasl_username!r} "
                    f"({kafka.sasl_mechanism}): mend the name, or the password in ${kafka.sasl_password_env}"
                )
            case UnsupportedSaslMechanismError():
                return (
                    f"it does not take kafka.sasl_mechanism = {kafka.sasl_mechanism!r}: "
                    "set one that this listener has enabled"
                )
            case ssl.SSLCertVerificationError():
                authority = repr(kafka.ssl_cafile) if kafka.ssl_cafile else "'' (the system's)"
                return (
                    f"its certificate is not trusted ({each.verify_message}): set kafka.ssl_cafile, now {authority}, "
                    "to the authority that signed it, and name the broker as its certificate does"
                )
            case ssl.SSLError() if "ALERT" in (each.reason or ""):
                certificate = f"refuses kafka.ssl_certfile = {kafka.ssl_certfile!r}"
                return (
                    f"it {certificate if kafka.ssl_certfile else 'asks for a certificate'} "
                    f"({(each.reason or '').replace('_', ' ').lower()}): "
                    "set kafka.ssl_certfile and kafka.ssl_keyfile to what an authority that it trusts has signed"
                )
    if any(isinstance(each, ssl.SSLError | ConnectionResetError | EOFError) for each in _causes(error)):
        return (
            f"it closes the connection: is kafka.security_protocol = {kafka.security_protocol!r} what that port "
            "speaks?"
        )
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, outermost first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
