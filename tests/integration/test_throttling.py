"""Quotas of a real broker: a process that is throttled says so."""

import logging
import subprocess
import time

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Producer
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from app.embedded import jars
from ringfence_kafka.aiokafka_patches import internals, throttling
from ringfence_kafka.process import java
from tests.support import kafka

CLIENT_ID = "throttled"
BYTES_S = 20_000


def _set_quota(bootstrap: str) -> None:
    """As ``kafka-configs.sh`` does."""
    subprocess.run(
        [
            str(java.find()), "-XX:TieredStopAtLevel=1", "-cp", jars.class_path(), "kafka.admin.ConfigCommand",
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
    assert internals.log  # it installs what looks at answers
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
        read = 0
        while not throttling.THROTTLED.total_ms:
            assert read < 40
            await consumer.getone()
            read += 1
    registry = CollectorRegistry()
    registry.register(_Throttled())

    assert throttling.THROTTLED.recent()["Fetch"] > 0
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 2 * throttling.RECENT_S)
    assert throttling.THROTTLED.recent() == {}
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert line.startswith(f"brokers throttle client.id {CLIENT_ID} (Fetch ")
    assert "raise consumer_byte_rate of its user or client.id" in line
    assert b'ringfence_throttled_seconds_total{api="Fetch"}' in generate_latest(registry)
