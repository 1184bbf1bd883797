"""Clusters with narrow limits: small requests, throttled clients, and slow links."""

import json
import logging
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Producer
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from app.embedded import jars
from app.embedded.broker import EmbeddedBroker
from app.embedded.broker_process import java_command
from ringfence_kafka.aiokafka_patches import throttling
from ringfence_kafka.broker_limits import METADATA_LIMIT, SESSION_MIN, TRANSACTION_LIMIT
from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import BridgeProcess, Two
from tests.support.consumers.processes import ConsumerProcess
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, configure, run_verb, wait_for

TIGHT = {TRANSACTION_LIMIT: "5000", METADATA_LIMIT: "50", SESSION_MIN: "8000"}


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("tight"), properties=TIGHT) as broker:
        yield broker.bootstrap_servers


def test_lanes_and_consumers_name_the_setting(tight: str, tmp_path: Path) -> None:
    """The log of both names the setting to change, and so does ``topics check``, which knows it before they start."""
    name = kafka.unique("tight")
    config = configure(tmp_path, tight, f"{name}-app", [{"name": name, "partitions": 1}])
    checked = run_verb("topics", "check", "--config", str(config), check=False)
    assert checked.returncode == 1
    assert f"{TRANSACTION_LIMIT} is 5000" in checked.stdout

    with WorkerProcess(config, "w") as worker, ConsumerProcess(config, "c", name, "handlers") as consumer:
        for process in (worker, consumer):
            wait_for(lambda process=process: TRANSACTION_LIMIT in process.log(), process.log)  # type: ignore[misc]


def test_a_bridge_that_cannot_commit_is_not_ok(tight: str, tmp_path: Path) -> None:
    """``bridge status`` reports a bridge that has begun nothing, although its errors travel in its commits."""
    bridge = processes.prepare(Two(tight, tight), tmp_path)
    bridge.send([Sent(b"1", b"g")])
    with BridgeProcess(bridge.config, "b") as process:
        wait_for(lambda: METADATA_LIMIT in process.log(), process.log)
        shown = run_verb("bridge", "status", "--json", "--config", str(bridge.config), check=False)
        assert shown.returncode == 1
        (row,) = json.loads(shown.stdout)["bridges"][bridge.name]["partitions"]
        assert "forwards nothing" in row["error"]


CLIENT_ID = "throttled"
BYTES_S = 20_000


def _set_quota(bootstrap: str) -> None:
    """Set a quota as ``kafka-configs.sh`` does."""
    subprocess.run(
        [
            *java_command(jars.KAFKA_VERSION), "kafka.admin.ConfigCommand",
            "--bootstrap-server", bootstrap, "--alter", "--add-config", f"consumer_byte_rate={BYTES_S}",
            "--entity-type", "clients", "--entity-name", CLIENT_ID,
        ],
        capture_output=True, check=True, timeout=kafka.WAIT_S,
    )  # fmt: skip


class _Throttled(Collector):
    def collect(self) -> list[object]:  # type: ignore[override]
        return [throttling.throttle_metric()]


async def test_a_quota_is_named(
    bootstrap: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line names the client, the quota and the time; the metric counts it."""
    monkeypatch.setattr(throttling, "THROTTLED", throttling.ThrottleLog())
    topic = kafka.unique("quota")
    kafka.create_topics(bootstrap, {topic: (1, {})})
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 20_000})
    for _ in range(40):
        producer.produce(topic, b"x" * 10_000)
    assert producer.flush(kafka.WAIT_S) == 0
    _set_quota(bootstrap)
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, client_id=CLIENT_ID, auto_offset_reset="earliest",
        max_partition_fetch_bytes=50_000,
    )  # fmt: skip
    async with consumer:
        limit = time.monotonic() + kafka.WAIT_S
        while (
            not throttling.THROTTLED.total_ms
        ):  # the broker applies the quota some time after the command ends
            assert time.monotonic() < limit
            await consumer.getmany(timeout_ms=1_000)
            await consumer.seek_to_beginning()
    registry = CollectorRegistry()
    registry.register(_Throttled())

    assert throttling.THROTTLED.recent()["Fetch"] > 0
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 2 * throttling.RECENT_S)
    assert throttling.THROTTLED.recent() == {}
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert line.startswith(f"brokers throttle client.id {CLIENT_ID} (Fetch ")
    assert "Raise consumer_byte_rate of its user or client.id" in line
    assert b'ringfence_throttled_seconds_total{api="Fetch"}' in generate_latest(registry)
