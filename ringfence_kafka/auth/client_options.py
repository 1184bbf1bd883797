"""Security options for each kind of client, and the reasons for which a broker refuses access.

The password is read from the environment when a client is created, and only that client keeps it.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Final

from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import create_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from ringfence_kafka import aiokafka_patches
from ringfence_kafka.auth import access_errors, client_properties, reachability
from ringfence_kafka.auth.oauth import source_of
from ringfence_kafka.auth.tls import ssl_context
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import BrokerUnavailableError, PrerequisiteError

REQUEST_TIMEOUT_MS: Final = 10_000
RETRY_BACKOFF_MS: Final = 40
PROBE_LIMIT_S: Final = 5.0
"""Limit of one query for the reason of a refusal, in seconds; a person waits."""


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """OAuth tokens for one aiokafka client."""

    def __init__(self, kafka: KafkaSettings) -> None:
        """Create the token provider. Raises as :func:`ringfence_kafka.auth.oauth.source_of`."""
        self._source = source_of(kafka)

    async def token(self) -> str:
        """Return a token that stays valid for a while.

        Raises:
            KafkaConnectionError: no token is available now; aiokafka tries again later, as after any other failed connection.
        """
        try:
            return (await asyncio.to_thread(self._source.current)).text
        except PrerequisiteError as error:
            raise KafkaConnectionError(str(error)) from error


def client_options(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the options of all aiokafka clients: addresses and access. Installs the patches of aiokafka."""
    aiokafka_patches.install()
    options: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in kafka.bootstrap_servers.split(",")],
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        "retry_backoff_ms": RETRY_BACKOFF_MS,
        "security_protocol": kafka.security_protocol,
        "client_id": kafka.client_id,
        **client_properties.for_aiokafka(kafka),
    }
    if kafka.uses_ssl:
        options["ssl_context"] = ssl_context(kafka)
    if kafka.uses_tokens:
        options["sasl_mechanism"] = kafka.sasl_mechanism
        options["sasl_oauth_token_provider"] = Tokens(kafka)
    elif kafka.uses_sasl:
        options["sasl_mechanism"] = kafka.sasl_mechanism
        options["sasl_plain_username"] = kafka.sasl_username
        options["sasl_plain_password"] = kafka.secret("sasl_password")
    return options


def producer_options(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the options of producers."""
    return client_options(kafka) | client_properties.for_aiokafka(kafka, client_properties.PRODUCERS)


async def refusal(kafka: KafkaSettings, *, was_in: bool = False) -> BrokerUnavailableError | None:
    """Try each server once more. Return the first refusal with its remedy; None if no server refuses.

    A host name without an address is also returned as an error if no server refuses. Kafka's clients themselves report only that no
    connection was made. ``was_in``: the client connected before, so a connection that closes at once means a proxy without its broker,
    not a wrong security protocol.
    """
    options = client_options(kafka)
    for name in ("retry_backoff_ms", "connections_max_idle_ms"):
        options.pop(name, None)
    unknown = None
    for server in options.pop("bootstrap_servers"):
        host, _, port = server.rpartition(":")
        try:
            async with asyncio.timeout(PROBE_LIMIT_S):
                connection = await create_conn(host, int(port), **options)
                try:
                    await connection.send(
                        MetadataRequest([])
                    )  # before the login a broker reports only its versions
                finally:
                    connection.close()
        except (KafkaError, OSError, TimeoutError) as error:
            for cause in _causes(error):
                if isinstance(cause, PrerequisiteError):
                    return BrokerUnavailableError(str(cause))
                if isinstance(cause, socket.gaierror) and not was_in:
                    unknown = access_errors.unresolved(kafka, host)
            reason = _reason(kafka, error)
            if reason is None and not was_in and _closed(error):
                reason = access_errors.protocol(
                    kafka, await asyncio.to_thread(reachability.speaks_tls, host, int(port))
                )
            if reason is not None:
                return access_errors.refused(server, reason)
    return unknown


def _reason(kafka: KafkaSettings, error: BaseException) -> str | None:
    """Return problem and remedy of one failed connection; None if it is not about access."""
    for cause in _causes(error):
        match cause:
            case IllegalSaslStateError():
                return access_errors.no_login(kafka)
            case SaslAuthenticationFailed():
                return access_errors.password(kafka)
            case UnsupportedSaslMechanismError():
                return access_errors.mechanism(kafka)
            case ssl.SSLCertVerificationError():
                return access_errors.authority(kafka, cause.verify_message, cause.verify_code)
            case ssl.SSLError() if "ALERT" in (cause.reason or ""):
                return access_errors.certificate(kafka, (cause.reason or "").replace("_", " ").lower())
    return None


def _closed(error: BaseException) -> bool:
    """Return whether the connection was made, and ended before any response."""
    return any(isinstance(cause, ssl.SSLError | ConnectionResetError | EOFError) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, outermost first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
