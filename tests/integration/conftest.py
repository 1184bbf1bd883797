"""Fixtures that several files of integration tests share."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.embedded.broker import EmbeddedBroker
from tests.support.bridges.processes import Two
from tests.support.brokers.secured import SecuredBroker
from tests.support.worker import Running, configure, worker


@pytest.fixture
def two(bootstrap: str) -> Two:
    """Return one cluster at both ends: where the target is makes no difference to most tests."""
    return Two(bootstrap, bootstrap)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse an address that two modules name: their tests share a broker, and so would read each other's records."""
    here = Path(__file__).parent
    modules = {
        item.module for item in items if isinstance(item, pytest.Function) and here in item.path.parents
    }
    served = [module for module in modules if hasattr(module, "APP") and hasattr(module, "ADDRESSES")]
    names = [address["name"] for module in served for address in module.ADDRESSES]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise pytest.UsageError(f"two test modules use the same address: {', '.join(twice)}; rename one")


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """One worker over the ``ADDRESSES`` of a module, with its ``APP`` as ``app.id``."""
    app_id, addresses = request.module.APP, request.module.ADDRESSES
    config = configure(tmp_path_factory.mktemp(app_id), broker.bootstrap_servers, app_id, addresses)
    with worker(config, app_id) as process:
        yield Running(broker.bootstrap_servers, process, addresses, app_id)


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Yield a broker with secured listeners; its configuration, which holds passwords, is outside the folders of tests."""
    broker = SecuredBroker(tmp_path_factory.mktemp("secured"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
