"""Brokers that are away under running processes, or come back at other addresses."""

import contextlib
import logging
from pathlib import Path
from typing import Final

import pytest
from aiokafka.client import AIOKafkaClient

from app.embedded import ports
from app.embedded.broker import EmbeddedBroker
from app.embedded.broker_process import HOST
from ringfence_kafka.aiokafka_patches import internals
from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import BridgeProcess, Two
from tests.support.brokers.link import TcpProxy
from tests.support.brokers.linked import LinkedBroker
from tests.support.consumers.processes import ConsumerProcess, noted
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, configure, wait_for, worker


def test_worker_outlives_its_broker(tmp_path: Path) -> None:
    """A worker whose broker is away is not ready and reports it once; then it resumes, exact."""
    count = 1_000
    with EmbeddedBroker(tmp_path / "broker") as broker:
        bootstrap = broker.bootstrap_servers
        config = configure(tmp_path, bootstrap, "away", [{"name": "away", "partitions": 1}])
        records = [Sent(None, b"g", b"%d" % index) for index in range(3 * count)]
        with worker(config, "w") as process:
            kafka.send(bootstrap, "away", records[:count])
            _reach(process, count)
            # In the middle of a transaction, or between two; either must do.
            kafka.send(bootstrap, "away", records[count : 2 * count])
            broker.pause()
            wait_for(lambda: process.health()[0] == 503, process.log)
            away = process.health()[1]["broker"]
            broker.resume()
            kafka.send(bootstrap, "away", records[2 * count :])
            _reach(process, 3 * count)
            process.wait_ready()
            log = process.log()

        assert away == "away"
        assert log.count("the broker does not answer") == 1
        assert log.count("the broker answers again") == 1
        assert len(log.splitlines()) < 60
        got = kafka.read_all(bootstrap, "away.accepted", 1)
        assert [item.value for item in got] == [record.value for record in records]


def _reach(process: WorkerProcess, goal: int) -> None:
    wait_for(
        lambda: process.health()[1].get("lanes", {}).get("away-0", {}).get("next") == goal,
        lambda: f"{process.health()}\n{process.log()}",
        120,
    )


COUNT: Final = 100
LINES: Final = 2
"""The handler writes one when it begins a message and one when it ends."""


@pytest.fixture
def new_port() -> int:
    """Return a free port, which differs from all that brokers are given later."""
    return ports.choose(HOST)


def test_worker_consumer_and_bridge_follow(tmp_path: Path, new_port: int) -> None:
    """Worker, consumer and bridge follow a move by themselves and process later messages; nothing is lost or repeated."""
    folder = tmp_path / "broker"
    first = [Sent(b"a%d" % index, b"g%d" % (index % 7), b"%d" % index) for index in range(COUNT)]
    second = [Sent(b"b%d" % index, b"g%d" % (index % 7), b"%d" % (COUNT + index)) for index in range(COUNT)]
    with contextlib.ExitStack() as stack:
        with EmbeddedBroker(folder) as broker:
            both = f"{broker.bootstrap_servers},{HOST}:{new_port}"
            config = configure(tmp_path, both, "moved", [{"name": "moved", "partitions": 1}])
            bridge = processes.prepare(Two(both, both), tmp_path)
            worker = WorkerProcess(config, "w")
            consumer = ConsumerProcess(config, "c", "moved", "handlers")
            crossing = BridgeProcess(bridge.config, "b")
            for process in (worker, consumer, crossing):
                stack.callback(process.destroy)
                process.start()
            for process in (worker, consumer, crossing):
                process.wait_ready()
            kafka.send(broker.bootstrap_servers, "moved", first)
            bridge.send(first)
            wait_for(lambda: len(noted(consumer.handled)) == LINES * COUNT, consumer.log)
            wait_for(lambda: sum(bridge.ends()) >= COUNT, crossing.log)
        with EmbeddedBroker(folder, new_port):
            bootstrap = f"{HOST}:{new_port}"
            kafka.send(bootstrap, "moved", second)
            kafka.send(bootstrap, bridge.topic, second)
            wait_for(
                lambda: len(noted(consumer.handled)) >= 2 * LINES * COUNT,
                lambda: consumer.log() + worker.log(),
            )
            wait_for(lambda: len(bridge.got()) >= 2 * COUNT, crossing.log)
            for process in (worker, consumer, crossing):
                process.wait_ready()
            assert worker.stop() == consumer.stop() == crossing.stop() == 0

            accepted = kafka.read_all(bootstrap, "moved.accepted", 1)
            assert [item.value for item in accepted] == [item.value for item in (*first, *second)]
            assert len(noted(consumer.handled)) == 2 * LINES * COUNT
            assert "now uses the brokers" in worker.log()


async def test_another_cluster_is_refused(
    linked: LinkedBroker, broker: EmbeddedBroker, new_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A bootstrap server that belongs to another cluster by now does not become this process's cluster."""
    ours = linked.links[0]
    client = AIOKafkaClient(bootstrap_servers=f"{ours.bootstrap},{HOST}:{new_port}")
    await client.bootstrap()
    before = client.cluster.brokers()
    ours.cut()
    try:
        with TcpProxy(broker.port, new_port), caplog.at_level(logging.ERROR):
            assert not await internals.ASK_METADATA(client, client.cluster, ())
        assert "belongs to cluster" in caplog.text
        assert client.cluster.brokers() == before
    finally:
        await client.close()
