"""Chooses and checks the ports of the embedded broker."""

import errno
import secrets
import socket
from typing import Final

from ringfence_kafka.errors import PrerequisiteError

_RANGE: Final = range(20_000, 32_768)
"""Ports below those of outgoing connections on Linux and macOS: else a client of a stopped broker could get
its port and connect to itself.
"""
_TRIES: Final = 200
_held: Final[dict[int, socket.socket | None]] = {}
"""Ports from :func:`choose`; None = the system does not allow listening beside a bound socket."""


def choose(host: str) -> int:
    """Return a free port that no other process gets while this one lives.

    A broker listens seconds after its port was chosen, and again after it was killed. In between another
    process could take the port. Therefore a socket stays bound to it without listening. On Linux that keeps
    out other processes and outgoing connections, but not a listener with SO_REUSEADDR, such as Kafka's. No
    socket is held on systems where it keeps out Kafka too (macOS).

    Raises:
        PrerequisiteError: No free port was found.
    """
    for _ in range(_TRIES):
        port = secrets.choice(_RANGE)
        if port in _held:
            continue
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # No SO_REUSEADDR here: it would allow the bind beside the bound socket of another process.
            holder.bind((host, port))
        except OSError:
            holder.close()
            continue
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if _fault(host, port) is None:
            _held[port] = holder
        else:
            holder.close()
            _held[port] = None
        return port
    raise PrerequisiteError(
        f"no free port between {_RANGE.start} and {_RANGE.stop - 1} on {host}: name one with --port"
    )


def require_free(host: str, port: int) -> None:
    """Check that the port is free.

    Raises:
        PrerequisiteError: It is not free. The message has the port and a remedy.
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
    """Return whether a program accepts connections there."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _fault(host: str, port: int) -> OSError | None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # as Java does, so that connections of a former broker in TIME_WAIT do not matter
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None
