"""Finds and checks the ports that the embedded broker listens on."""

import errno
import secrets
import socket
from typing import Final

from ringfence_kafka.errors import PrerequisiteError

_RANGE: Final = range(20_000, 32_768)
"""Below the ports of outgoing connections on Linux and macOS. Else a client of a stopped broker could get the broker's own port and connect
to itself."""
_TRIES: Final = 200
_held: Final[dict[int, socket.socket | None]] = {}
"""Ports of :func:`choose`; None where the system lets nobody listen beside a bound socket."""


def choose(host: str) -> int:
    """Return a free port that no other process gets as long as this one lives.

    A broker listens seconds after its port was chosen, and again after it was killed; in between another process could take the port.
    Therefore a socket stays bound to it without listening. On Linux that keeps the port from others, and from outgoing connections, but not
    from a listener with SO_REUSEADDR, as Kafka's. On a system where it would (macOS), no socket is held.

    Raises:
        PrerequisiteError: none was found.
    """
    for _ in range(_TRIES):
        port = secrets.choice(_RANGE)
        if port in _held:
            continue
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Without SO_REUSEADDR, which would let it pass beside another's that is held in the same way.
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


def choose_several(host: str, count: int) -> list[int]:
    """Different ports, each as :func:`choose` gives it."""
    return [choose(host) for _ in range(count)]


def require_free(host: str, port: int) -> None:
    """Check that the port is free.

    Raises:
        PrerequisiteError: it is not; the text names the port and a remedy.
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
