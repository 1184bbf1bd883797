"""Clusters with narrow limits: small requests, throttled clients, and slow links."""

import asyncio
import json
import logging
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Producer
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from agents.bridge.source import RESPONSE_BYTES_MAX
from app.embedded import jars
from app.embedded.broker import EmbeddedBroker
from app.embedded.broker_process import java_command
from ringfence_kafka.aiokafka_patches import throttling
from ringfence_kafka.broker_limits import METADATA_LIMIT, SESSION_MIN, TRANSACTION_LIMIT
from tests.harness.checker.groups import judge, parse
from tests.harness.workloads.message_groups import Shape, accept, generate, sizes
from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import BridgeProcess, Two, prepare
from tests.support.brokers.linked import LinkedBroker, linked_broker
from tests.support.consumers.processes import ConsumerProcess, consumers, noted
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
    """``bridge status`` reports a bridge that has begun nothing, although its errors travel in its commits."""
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


def test_a_session_time_out_that_brokers_refuse(tight: str, tmp_path: Path) -> None:
    name = kafka.unique("brief")
    config = configure(tmp_path, tight, name, [{"name": name, "partitions": 1}])
    worker = WorkerProcess(config, "w", {"RINGFENCE_APP__SESSION_TIMEOUT": "7"})
    try:
        worker.start()
        wait_for(lambda: SESSION_MIN in worker.log(), worker.log)
    finally:
        worker.destroy()


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
    assert "Raise consumer_byte_rate of its user or client.id" in line
    assert b'ringfence_throttled_seconds_total{api="Fetch"}' in generate_latest(registry)


SEED = 71
COUNT = 150
BYTES = 10_000
BATCH = 10
PARTITIONS = 6
SHAPE = Shape(messages=150, group_size=5, interleave=30)
REQUEST_MS = 1_000
NARROW = 300_000
"""Bytes a second: 1/5 of all in the time of a request."""


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedBroker]:
    """Yield the other broker, at the far end of the link."""
    with linked_broker(tmp_path_factory.mktemp("far"), links=1, properties=processes.FOREVER) as far:
        yield far


@pytest.mark.parametrize("side", ["target", pytest.param("source", marks=pytest.mark.long)])
async def test_flows_over_a_narrow_link(
    broker: object,
    bootstrap: str,
    linked: LinkedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    side: str,
) -> None:
    """A bridge divides a request that would time out until it passes, and enlarges it when the link is good again."""
    monkeypatch.setattr("ringfence_kafka.auth.client_options.REQUEST_TIMEOUT_MS", REQUEST_MS)
    monkeypatch.setattr("agents.bridge.flow.REQUEST_TIMEOUT_MS", REQUEST_MS)
    monkeypatch.setattr("ringfence_kafka.producer.idempotent.ACKNOWLEDGED_WITHIN_S", 2 * REQUEST_MS / 1000)
    link, to_target = linked.links[0], side == "target"
    link.open()
    two = Two(bootstrap, linked.bootstrap) if to_target else Two(link.bootstrap, bootstrap)
    given = prepare(two, tmp_path, target=link.bootstrap if to_target else "")
    padding = random.Random(SEED).randbytes(BYTES * COUNT)
    for first in range(0, COUNT, BATCH):  # of a fetch one batch comes in any case
        given.send([
            Sent(key=b"%d" % (index % 7), value=b"%06d" % index + padding[index * BYTES : (index + 1) * BYTES])
            for index in range(first, first + BATCH)
        ])  # fmt: skip
    link.narrow(NARROW)
    async with processes.in_this_process(given.config) as (bridge,):
        await asyncio.to_thread(given.settled, [COUNT])
        portion = bridge._flow.portion if to_target else bridge._partitions.consumer.portion.portion
        narrowed = portion.bytes
    got = processes.passed(given.got())

    assert sorted(int((item.value or b"")[:6]) for item in got) == list(range(COUNT))
    assert narrowed < RESPONSE_BYTES_MAX / 8
    assert link.bytes_delayed > BYTES * COUNT


@pytest.mark.long
def test_consumer_over_a_narrow_link(linked: LinkedBroker, tmp_path: Path) -> None:
    """A consumer asks for less until it comes in time: all is handled, in order."""
    link, name = linked.links[0], kafka.unique("narrow")
    link.open()
    config = configure(tmp_path, linked.bootstrap, name, [{"name": name, "partitions": PARTITIONS}])
    sent = generate(SHAPE, SEED, "narrow")
    for first in range(0, len(sent), BATCH):
        accept(linked.bootstrap, name, sent[first : first + BATCH], padding=2 * BYTES)
    options = ("--bootstrap-server", link.bootstrap, "-X", f"request.timeout.ms={REQUEST_MS}")
    process = ConsumerProcess(config, "far", name, f"{name}-group", *options)
    before = link.bytes_delayed
    link.narrow(NARROW)
    with consumers(process):
        wait_for(lambda: len(noted(process.handled)) == 2 * len(sent), process.log, 120)
        link.open()
    runs = parse(noted(process.handled))

    assert judge(runs, sizes(sent)) == []
    assert link.bytes_delayed - before > 2 * BYTES * len(sent)
