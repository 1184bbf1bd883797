"""Fixtures of the tests that disturb the link between a client and the broker."""

from collections.abc import Iterator

import pytest

from tests.support import kafka
from tests.support.brokers.linked import LinkedBroker, linked_broker


@pytest.fixture(scope="session")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedBroker]:
    with linked_broker(tmp_path_factory.mktemp("linked")) as running:
        kafka.settle(running.bootstrap)
        yield running


@pytest.fixture
def linked(_shared: LinkedBroker) -> Iterator[LinkedBroker]:
    """Yield a broker with two links, open at the beginning of each test. Topics are shared, as in ``broker``."""
    _shared.heal()
    yield _shared
    _shared.heal()
