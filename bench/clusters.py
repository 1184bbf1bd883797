"""The brokers of a benchmark: one, or two with a slow link to the second."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.embedded import ports
from app.embedded.broker import EmbeddedBroker
from app.embedded.broker_process import HOST
from app.embedded.server_files import Listener, listener_properties
from tests.support.brokers.link import TcpProxy

RESULTS: Final = Path(__file__).parent / "results"
"""The folder of the documents that benchmarks write."""
_LINK: Final = "LINK"


@dataclass(frozen=True, slots=True)
class Clusters:
    """Both run."""

    source: EmbeddedBroker
    target: EmbeddedBroker
    link: TcpProxy
    """To the target; clients that begin there stay on it."""


@contextlib.contextmanager
def temporary_broker() -> Iterator[tuple[EmbeddedBroker, Path]]:
    """Yield a broker and a folder, both gone at the end."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        folder = Path(name)
        with EmbeddedBroker(folder / "broker") as broker:
            yield broker, folder


@contextlib.contextmanager
def clusters(folder: Path, round_trip_s: float) -> Iterator[Clusters]:
    """Start them; they are gone at the end.

    Args:
        folder: Theirs.
        round_trip_s: Over the link, half of it each way.
    """
    plain, controller, inner, outer = (ports.choose(HOST) for _ in range(4))
    properties = listener_properties(HOST, plain, controller, {_LINK: Listener(inner, advertised_port=outer)})
    with (
        EmbeddedBroker(folder / "source") as source,
        EmbeddedBroker(folder / "target", plain, properties=properties) as target,
        TcpProxy(inner, outer) as link,
    ):
        link.delay(round_trip_s / 2)
        yield Clusters(source, target, link)
