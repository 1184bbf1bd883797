"""Finds and checks the ports that the embedded broker listens on."""

import errno
import secrets
import socket
from typing import Final

from ringfence_kafka.errors import PrerequisiteError

_RANGE: Final = range(20_000, 32_768)
"""Below the ports that Linux and macOS hand to outgoing connections. From among those, a client that tries to
reach the broker while it is down could be given the broker's own port, connect to itself, and keep it."""
_TRIES: Final = 200


def choose(host: str, *, avoid: int = 0) -> int:
    """A port on which nothing listens now.

    Raises:
        PrerequisiteError: none was found.
    """
    for _ in range(_TRIES):
        port = secrets.choice(_RANGE)
        if port != avoid and _fault(host, port) is None:
            return port
    raise PrerequisiteError(
        f"no free port between {_RANGE.start} and {_RANGE.stop - 1} on {host}: name one with --port"
    )


def require_free(host: str, port: int) -> None:
    """Make sure that the port can be listened on.

    Raises:
        PrerequisiteError: it cannot; names the port and the way out.
    """
    fault = _fault(host, port)
    if fault is None:
        return
    if fault.errno == errno.EADDRINUSE:
        raise PrerequisiteError(
            f"port {port} of {host} is in use: stop what listens there, or choose another port with --port "
            "(0 = any free one)"
        )
    raise PrerequisiteError(
        f"port {port} of {host} cannot be listened on ({fault.strerror}): choose another with --port"
    )


def answers(host: str, port: int) -> bool:
    """Whether something accepts connections there."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _fault(host: str, port: int) -> OSError | None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java does it: connections of a former broker that linger in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None
