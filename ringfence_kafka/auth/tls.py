"""Security settings of ``[kafka]``, read and checked before any client gets them."""

import logging
import ssl
from pathlib import Path
from typing import Any, Final

from ringfence_kafka.auth import client_properties
from ringfence_kafka.auth.oauth import source_of
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import ConfigurationError

_UNHEARD: Final = logging.getLogger("librdkafka")
"""Logger that discards librdkafka's lines. It writes some regardless of their level; its errors are also in its results."""
_UNHEARD.addHandler(logging.NullHandler())
_UNHEARD.propagate = False


def ssl_context(kafka: KafkaSettings) -> ssl.SSLContext:
    """Return a context that verifies brokers' certificates and host names, with the client's certificate if one is configured.

    Raises:
        ConfigurationError: the content of a file is not valid.
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
            context.load_cert_chain(
                kafka.ssl_certfile, kafka.ssl_keyfile, kafka.secret("ssl_key_password") or _no_passphrase
            )
        except OSError as error:
            if kafka.secret("ssl_key_password") and _is_locked(kafka.ssl_keyfile) and _names_nothing(error):
                raise ConfigurationError(
                    f"kafka.ssl_keyfile = {kafka.ssl_keyfile!r} cannot be decrypted with the password in {kafka.secret_place('ssl_key_password')}: fix "
                    "that password, or name the key that it belongs to"
                ) from error
            raise ConfigurationError(
                f"kafka.ssl_certfile = {kafka.ssl_certfile!r}, kafka.ssl_keyfile = {kafka.ssl_keyfile!r} cannot be "
                f"used ({_fault(error)}): name readable PEM files of a certificate and of its own key"
            ) from error
        except _EncryptedKeyError as error:
            raise ConfigurationError(
                f"kafka.ssl_keyfile = {kafka.ssl_keyfile!r} is encrypted: name the variable that holds its password as "
                "kafka.ssl_key_password_env, or decrypt it into a file that only this user can read (openssl pkey -in … -out …)"
            ) from error
    return context


def confluent_options(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the security options of librdkafka's clients. Raises as :func:`ssl_context`, and PrerequisiteError without a token."""
    options: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
        "client.id": kafka.client_id,
        "log_level": 0,
        "logger": _UNHEARD,
        **client_properties.for_librdkafka(kafka),
    }
    if kafka.uses_ssl:
        ssl_context(kafka)  # librdkafka's error for a faulty file names neither the key nor a remedy
        files = {
            "ssl.ca.location": kafka.ssl_cafile,
            "ssl.certificate.location": kafka.ssl_certfile,
            "ssl.key.location": kafka.ssl_keyfile,
        }
        options |= {key: value for key, value in files.items() if value}
        if kafka.ssl_keyfile and (password := kafka.secret("ssl_key_password")):
            options["ssl.key.password"] = password
    if kafka.uses_tokens:
        options["sasl.mechanism"] = kafka.sasl_mechanism
        source = source_of(kafka)
        source.current()  # otherwise librdkafka reports only after ten seconds that there was no token
        options["oauth_cb"] = lambda _config: source.current()
    elif kafka.uses_sasl:
        options["sasl.mechanism"] = kafka.sasl_mechanism
        options["sasl.username"] = kafka.sasl_username
        options["sasl.password"] = kafka.secret("sasl_password")
    return options


class _EncryptedKeyError(Exception):
    """A key asks for a passphrase."""


def _no_passphrase() -> str:
    """Raise instead of OpenSSL's question on the terminal, for which a worker would wait forever."""
    raise _EncryptedKeyError


def _is_locked(keyfile: str) -> bool:
    """Return whether a key is encrypted, in either PEM form."""
    try:
        return b"ENCRYPTED" in Path(keyfile).read_bytes()
    except OSError:
        return False


def _names_nothing(error: OSError) -> bool:
    """Return whether OpenSSL only reports that it cannot read a PEM file, as after a wrong password."""
    return isinstance(error, ssl.SSLError) and not error.reason


def _fault(error: OSError) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return str(reason or error).replace("_", " ").lower()
