"""Fixtures that every kind of test may use."""

import contextlib
import importlib
import itertools
import signal
from collections.abc import Iterator
from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling

from app.embedded.broker import EmbeddedBroker
from ringfence_kafka import aiokafka_patches
from ringfence_kafka.producer import transaction_v2_requests, transaction_version
from tests.support import kafka
from tests.support.brokers import features, shared
from tests.support.checkout import ROOT

_SPARK: Final = "tests/reconcile/"
_SECURED: Final = ("bridge_security", "committed_result", "documented_rights", "rights_of_sends", "security")
"""Files of integration tests that need a secured broker."""


def pytest_configure(config: pytest.Config) -> None:
    """Install the patches of aiokafka, heed signals, and share a broker if several processes run the tests.

    Tests that are started in the background ignore signals, and every program that they start would inherit that.
    """
    aiokafka_patches.install()
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    if getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(shared.SharedBroker())


def pytest_collection(session: pytest.Session) -> None:
    """Import the test modules of a whole run, each process in another order.

    pytest rewrites the asserts of a module when it is first imported. Each process does that for a part, and finds the others in the cache.
    """
    process: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if process is None or session.config.args != session.config.getini("testpaths"):
        return
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
    ]
    first = len(modules) * int(process["workerid"].removeprefix("gw")) // process["workercount"]
    for name in (*modules[first:], *modules[:first]):
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting it reports that
            importlib.import_module(name)


@pytest.fixture(scope="session")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedBroker]:
    """One broker for all tests of a run, of the version that ``RINGFENCE_KAFKA_VERSION`` names.

    Do not stop, kill or pause it: a test that does makes an EmbeddedBroker of its own. Topics and groups are
    shared, so name them after the test.
    """
    if found := shared.shared_broker(request.config):
        yield found
        return
    with EmbeddedBroker(tmp_path_factory.mktemp("broker"), properties=shared.PROPERTIES) as running:
        kafka.settle(running.bootstrap_servers)
        yield running


@pytest.fixture
def bootstrap(broker: EmbeddedBroker) -> str:
    return broker.bootstrap_servers


@pytest.fixture(params=["on", "off"], ids=["implicit", "explicit"])
def transactions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How producers write their transactions, for tests that hold of both: each runs once with either that the cluster has."""
    if request.param == "on":
        features.require(request.getfixturevalue("bootstrap"), transaction_v2_requests.FEATURE)
    monkeypatch.setenv(transaction_version.VARIABLE, request.param)
    return str(request.param)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of faults, which mostly wait, between the others, which mostly work: side by side they take the least time.

    Spark's come first of these: what takes long must not be the last.
    """
    files = [list(found) for _, found in itertools.groupby(items, key=lambda item: item.path)]
    waiting = [file for file in files if "faults" in file[0].path.parts]
    working = [file for file in files if "faults" not in file[0].path.parts]
    working.sort(key=lambda file: _SPARK not in file[0].nodeid)
    mixed = itertools.chain.from_iterable(
        itertools.zip_longest(waiting, working[::2], working[1::2], fillvalue=[])
    )
    items[:] = [item for found in mixed for item in found]


class ByFileOrFolder(LoadFileScheduling):  # type: ignore[misc]
    """Gives out whole files, and Spark's by folder. Each folder then warms one JVM, and two of them share the machine.

    All files that need a secured broker go to one process, which starts one.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_SPARK):
            return nodeid.partition("::")[0].rpartition("/")[0]
        if nodeid.startswith(tuple(f"tests/integration/test_{name}.py" for name in _SECURED)):
            return "secured"
        return str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFileOrFolder:
    """For ``--dist loadfile``."""
    return ByFileOrFolder(config, log)
