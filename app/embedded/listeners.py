"""Listeners of an embedded broker beyond the one that it always has.

Ports are chosen once, also the controller's: a broker that starts again has them again.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from app.embedded import ports, server_files
from app.embedded.broker_process import HOST

CONTROLLER: Final = "CONTROLLER"
PLAINTEXT: Final = "PLAINTEXT"


class Listener(NamedTuple):
    """Where a broker listens, and where it tells clients to come."""

    port: int
    protocol: str = PLAINTEXT
    advertised_port: int = 0
    """0 = the same."""


def free_ports(count: int) -> list[int]:
    """Different ports on which nothing listens; they are kept for this process."""
    return [ports.choose(HOST) for _ in range(count)]


def properties(plain_port: int, controller_port: int, further: Mapping[str, Listener]) -> dict[str, str]:
    """What makes a broker listen there.

    Args:
        plain_port: Of the broker itself, and of the tests' own clients.
        controller_port: Of the controller, to which only the broker connects.
        further: By the listener's name.
    """
    public = {PLAINTEXT: Listener(plain_port), **further}
    everything = {**public, CONTROLLER: Listener(controller_port)}
    return {
        "listeners": ",".join(f"{name}://{HOST}:{item.port}" for name, item in everything.items()),
        "advertised.listeners": ",".join(
            f"{name}://{HOST}:{item.advertised_port or item.port}" for name, item in public.items()
        ),
        "listener.security.protocol.map": ",".join(
            f"{name}:{item.protocol}" for name, item in everything.items()
        ),
        "controller.quorum.voters": f"{server_files.NODE_ID}@{HOST}:{controller_port}",
    }
