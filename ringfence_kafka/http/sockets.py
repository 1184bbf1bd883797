"""Sockets of web servers."""

import errno
import socket
from typing import Final

from ringfence_kafka.errors import PrerequisiteError

_NOT_OURS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


def server_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket, over IPv4 or IPv6: a name with both gets IPv4, and ``::`` both.

    Raises:
        PrerequisiteError: this machine does not have the address.
        OSError: the port is not free.
    """
    try:
        known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = min(known, key=lambda info: info[0] != socket.AF_INET)
        return socket.create_server(
            address, family=family, dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6()
        )
    except OSError as error:
        if not isinstance(error, socket.gaierror) and error.errno not in _NOT_OURS:
            raise
        raise PrerequisiteError(
            f"app.web_host = {host!r}: this machine cannot listen there ({error.strerror}): write an address or a name of its own, 127.0.0.1 "
            "for itself alone, or 0.0.0.0 for all"
        ) from error


def listen(host: str, port: int | None) -> socket.socket:
    """Return a listening socket for ``--web-port``; without a number, on any free port.

    Raises:
        PrerequisiteError: the port is not free, or this machine does not have the address.
    """
    try:
        return server_socket(host, port or 0)
    except OSError as error:
        raise PrerequisiteError(
            f"--web-port {port or 0}: cannot listen on {host} ({error.strerror}): choose another, or 0 for none"
        ) from error
