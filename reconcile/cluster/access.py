"""Reasons why a broker denies access or does not answer, from messages that librdkafka logs while it retries.

Librdkafka itself retries on, and finally reports only a time-out.
"""

import re
import ssl
from collections.abc import Iterable
from socket import create_connection
from typing import Final

from confluent_kafka import KafkaError

from ringfence_kafka.auth import access_errors, reachability
from ringfence_kafka.auth.tls import ssl_context
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import BrokerUnavailableError

HANDSHAKE_LIMIT_S: Final = 5.0

_SAID: Final = re.compile(
    r"(?:\w+://)?(?P<server>\S+)/(?P<node>\w+): (?P<text>.*?)(?: \(after \d+ms in state .*\))?", re.DOTALL
)
"""``ssl://host:9093/bootstrap: SSL handshake failed: … (after 7ms in state …)``, or a broker's number."""
_ALERT: Final = re.compile(r"alert ([a-z ]+)")
_AWAY: Final = frozenset({KafkaError._RESOLVE, KafkaError._TIMED_OUT})
_NO_CONNECTION: Final = re.compile(r"Connect to \S+ failed: (.*)", re.DOTALL)


def unreachable(kafka: KafkaSettings, heard: Iterable[KafkaError]) -> BrokerUnavailableError:
    """Return an error that explains all messages on connections: a refusal if any, else an absent broker."""
    absent = ""
    for error in heard:
        said = _SAID.fullmatch(error.str())
        if said is None:  # message without a connection
            continue
        if away := _away(error, said["text"]):
            named = "" if said["node"] == "bootstrap" else f"{said['server']}, which the brokers advertise: "
            absent = absent or f" ({named}{away})"
        else:
            return access_errors.refused(said["server"], _reason(kafka, error, said["server"], said["text"]))
    if not absent:  # the client does not report connections that the broker closes silently
        first = kafka.bootstrap_servers.split(",")[0].strip()
        return access_errors.refused(first, access_errors.protocol(kafka, _tls(first)))
    return access_errors.nobody(kafka, absent)


def _away(error: KafkaError, text: str) -> str | None:
    """Return why there was no connection; None = there was one."""
    if found := _NO_CONNECTION.fullmatch(text):
        return found[1]
    return text if error.code() in _AWAY else None


def _reason(kafka: KafkaSettings, error: KafkaError, server: str, text: str) -> str:
    if error.code() == KafkaError._AUTHENTICATION:
        if "current SASL state" in text:
            return access_errors.no_login(kafka)
        return (
            access_errors.mechanism(kafka)
            if "Unsupported SASL mechanism" in text
            else access_errors.password(kafka)
        )
    if "certificate verify failed" in text:
        return access_errors.authority(kafka, *(_distrust(kafka, server) or ("certificate verify failed",)))
    if found := _ALERT.search(text):
        return access_errors.certificate(kafka, f"alert {found[1].strip()}")
    return access_errors.protocol(kafka, _tls(server))


def _tls(server: str) -> bool | None:
    host, _, port = server.rpartition(":")
    return reachability.speaks_tls(host, int(port))


def _distrust(kafka: KafkaSettings, server: str) -> tuple[str, int] | None:
    """Return OpenSSL's reason and number of the certificate problem, which librdkafka does not report."""
    host, _, port = server.rpartition(":")
    try:
        with create_connection((host, int(port)), HANDSHAKE_LIMIT_S) as plain:
            ssl_context(kafka).wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return error.verify_message, error.verify_code
    except OSError:
        pass
    return None
