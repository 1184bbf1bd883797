"""One broker for all processes of a test run, started by the process that gives out the tests."""

import contextlib
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.workermanage import WorkerController

from app.embedded.broker import EmbeddedBroker
from tests.support import kafka

PROPERTIES: Final = {
    "log.retention.ms": "-1",  # some tests send records of long ago, which retention would delete from under them
    "group.min.session.timeout.ms": "1000",  # for tests that outlast one
}
_WITHOUT: Final = ("tests/unit/", "tests/property/", "tests/simulation/")
_KEY: Final = "shared_broker"


class SharedBroker:
    """Plugin of the process that gives out the tests."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="ringfence-broker-")))
        self._broker = EmbeddedBroker(folder, properties=PROPERTIES)

    def pytest_configure_node(self, node: WorkerController) -> None:
        node.workerinput[_KEY] = (str(self._broker.directory), self._broker.port)

    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        """Start the broker before the first test, unless no test needs one."""
        if not self._broker.running and not all(name.startswith(_WITHOUT) for name in ids):
            self._stack.enter_context(self._broker)
            kafka.settle(self._broker.bootstrap_servers)

    def pytest_unconfigure(self) -> None:
        self._stack.close()


def shared_broker(config: pytest.Config) -> EmbeddedBroker | None:
    """Return the broker that all processes of this run share; None = this process runs all tests."""
    workerinput: dict[str, Any] = getattr(config, "workerinput", {})
    if _KEY not in workerinput:
        return None
    folder, port = workerinput[_KEY]
    return EmbeddedBroker(Path(folder), port)
