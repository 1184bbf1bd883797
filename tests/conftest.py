"""Fixtures that every kind of test may use."""

from collections.abc import Iterator

import pytest

from app.embedded.broker import EmbeddedBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """One broker for all tests of a run.

    Do not stop, kill or pause it: a test that does makes an EmbeddedBroker of its own. Topics and groups are
    shared, so name them after the test.
    """
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def bootstrap(broker: EmbeddedBroker) -> str:
    """``host:port`` of the broker."""
    return broker.bootstrap_servers
