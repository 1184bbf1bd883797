"""Quick check of a cluster, before any large module is loaded: whether a server listens."""

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ringfence_kafka.auth.access_errors import nobody
from ringfence_kafka.config.kafka import KafkaSettings

LOOK_LIMIT_S: Final = 0.5
HANDSHAKE_LIMIT_S: Final = 3.0


def require_listener(kafka: KafkaSettings) -> None:
    """Return unless every address refuses at once. A slow address raises nothing: later callers wait longer for it.

    Raises:
        BrokerUnavailableError: no address accepts connections.
    """
    places = [part.strip().rpartition(":") for part in kafka.bootstrap_servers.split(",")]
    pool = ThreadPoolExecutor(len(places))
    try:
        tried = [pool.submit(_refusal, host.strip("[]"), int(port)) for host, _, port in places]
        refusals = []
        for future in tried:
            try:
                refusals.append(future.result(2 * LOOK_LIMIT_S))
            except TimeoutError:
                return  # a slow name lookup
    finally:
        pool.shutdown(wait=False)
    if all(refusals):
        raise nobody(kafka, f" ({refusals[0]})")


def _refusal(host: str, port: int) -> str:
    """Return why the connection was refused; empty = it was accepted, or not answered in time."""
    try:
        socket.create_connection((host, port), LOOK_LIMIT_S).close()
    except TimeoutError:
        return ""
    except socket.gaierror:
        return f"cannot resolve host {host!r}"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def speaks_tls(host: str, port: int) -> bool | None:
    """Return whether the port answers a TLS handshake; None = not known. Nothing secret is sent, so nothing is verified."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), HANDSHAKE_LIMIT_S) as plain:
            context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # an alert is an answer in TLS
    except ConnectionResetError:
        return False
    except OSError:
        return None
    return True
