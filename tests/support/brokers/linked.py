"""A broker that clients reach through links, each with a listener that advertises its port; tests use the direct listener."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.embedded import ports
from app.embedded.broker import EmbeddedBroker
from app.embedded.broker_process import HOST
from app.embedded.server_files import Listener, listener_properties
from tests.support.brokers.link import TcpProxy


@dataclass(frozen=True)
class LinkedBroker:
    """The broker and its links. All ports stay the same when the broker is killed and started again."""

    broker: EmbeddedBroker
    links: list[TcpProxy]

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap_servers

    def heal(self) -> None:
        for link in self.links:
            link.open()


@contextlib.contextmanager
def linked_broker(
    folder: Path, links: int = 2, properties: Mapping[str, str] | None = None
) -> Iterator[LinkedBroker]:
    """Run a broker with so many open links, and ``properties`` over Ringfence's own."""
    plain, controller, *rest = [ports.choose(HOST) for _ in range(2 + 2 * links)]
    inner, outer = rest[:links], rest[links:]
    further = {
        f"LINK{number}": Listener(port, advertised_port=advertised)
        for number, (port, advertised) in enumerate(zip(inner, outer, strict=True))
    }
    given = listener_properties(HOST, plain, controller, further) | dict(properties or {})
    with contextlib.ExitStack() as stack:
        proxies = [
            stack.enter_context(TcpProxy(port, advertised))
            for port, advertised in zip(inner, outer, strict=True)
        ]
        yield LinkedBroker(stack.enter_context(EmbeddedBroker(folder, plain, properties=given)), proxies)
