"""A broker whose limits are tighter than what Ringfence needs: each refusal names the setting, and checks do not say ok."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.broker_limits import METADATA_LIMIT, SESSION_MIN, TRANSACTION_LIMIT
from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import BridgeProcess, Two
from tests.support.consumers.processes import ConsumerProcess
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, configure, run_verb, wait_for

TIGHT = {TRANSACTION_LIMIT: "5000", METADATA_LIMIT: "50"}


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("tight"), properties=TIGHT) as broker:
        yield broker.bootstrap_servers


def test_lanes_and_consumers_name_the_setting(tight: str, tmp_path: Path) -> None:
    """The log of both says what to change, and so does ``topics check``, which knows it before they start."""
    name = kafka.unique("tight")
    config = configure(tmp_path, tight, f"{name}-app", [{"name": name, "partitions": 1}])
    checked = run_verb("topics", "check", "--config", str(config), check=False)
    assert checked.returncode == 1
    assert f"{TRANSACTION_LIMIT} is 5000" in checked.stdout

    worker, consumer = WorkerProcess(config, "w"), ConsumerProcess(config, "c", name, "handlers")
    try:
        for process in (worker, consumer):
            process.start()
        for process in (worker, consumer):
            wait_for(lambda process=process: TRANSACTION_LIMIT in process.log(), process.log)  # type: ignore[misc]
    finally:
        worker.destroy()
        consumer.destroy()


def test_a_bridge_that_cannot_commit_is_not_ok(tight: str, tmp_path: Path) -> None:
    """Its errors travel in what it commits; ``bridge status`` says by itself that it has begun nothing."""
    bridge = processes.prepare(Two(tight, tight), tmp_path)
    bridge.send([Sent(b"1", b"g")])
    process = BridgeProcess(bridge.config, "b")
    try:
        process.start()
        wait_for(lambda: METADATA_LIMIT in process.log(), process.log)
        shown = run_verb("bridge", "status", "--json", "--config", str(bridge.config), check=False)
        assert shown.returncode == 1
        (row,) = json.loads(shown.stdout)["bridges"][bridge.name]["partitions"]
        assert "forwards nothing" in row["error"]
    finally:
        process.destroy()


def test_a_session_time_out_that_brokers_refuse(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "broker", properties={SESSION_MIN: "20000"}) as broker:
        config = configure(tmp_path, broker.bootstrap_servers, "app", [{"name": "brief", "partitions": 1}])
        worker = WorkerProcess(config, "w")
        try:
            worker.start()
            wait_for(lambda: SESSION_MIN in worker.log(), worker.log)
        finally:
            worker.destroy()
