"""``transaction.version`` is lowered while Ringfence uses it: refusals, their text, and the remedy."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.producer import transaction_version
from ringfence_kafka.producer.transaction_v2_requests import FEATURE, SELF_ADDING
from ringfence_kafka.producer.transactional import Outgoing, TransactionalProducer, TransactionVersionError
from tests.support import kafka
from tests.support.brokers import features
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, configure, run_verb, wait_for

PARTITIONS = 2
MESSAGES = 2_000
PORTION = 20


@pytest.fixture
def own(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """Yield a broker that a test may change and restart."""
    with EmbeddedBroker(tmp_path / "broker") as running:
        features.require(running.bootstrap_servers, FEATURE)
        kafka.settle(running.bootstrap_servers)
        yield running


def _producer(broker: EmbeddedBroker, name: str) -> TransactionalProducer:
    return TransactionalProducer(KafkaSettings(bootstrap_servers=broker.bootstrap_servers), name, name)


async def _write(producer: TransactionalProducer, value: str) -> None:
    builder = producer.builder()
    builder.append(timestamp=None, key=b"k", value=value.encode(), headers=[])
    await producer.transact([Outgoing("t", 0, builder)], {TopicPartition("t", 0): 1}, "g")


def _values(broker: EmbeddedBroker) -> list[str]:
    return [(item.value or b"").decode() for item in kafka.read_all(broker.bootstrap_servers, "t", 1)]


async def _used(broker: EmbeddedBroker, *names: str) -> None:
    for name in names:
        producer = _producer(broker, name)
        await producer.fence()
        await _write(producer, name)
        await producer.discard()


async def _refusal(broker: EmbeddedBroker, name: str, limit_s: float = 30) -> str:
    refused = _producer(broker, name)
    with pytest.raises(KafkaError) as caught:
        await refused.fence(limit_s)
    await refused.discard()
    return str(caught.value)


def _restart(broker: EmbeddedBroker) -> None:
    broker.stop()
    broker.start()


async def test_lowered_to_0(own: EmbeddedBroker) -> None:
    """An ID in use is refused, at once and from then on, and the error names the reason. Others are not refused."""
    kafka.create_topics(own.bootstrap_servers, {"t": (1, {})})
    await _used(own, "one")
    features.lower(own.bootstrap_servers, FEATURE, 0)

    for limit_s in (30, 2):
        said = await _refusal(own, "one", limit_s)
        assert said == str(TransactionVersionError("one"))
        assert said.startswith(
            f"TransactionVersionError: {transaction_version.LOWERED}: {transaction_version.WAY_OUT}"
        )
    await _used(own, "new")
    assert _values(own) == ["one", "new"]


@pytest.mark.long
async def test_way_out(own: EmbeddedBroker) -> None:
    """All continues after a change to 1. After a change to 0, a restart and a raise are both needed."""
    kafka.create_topics(own.bootstrap_servers, {"t": (1, {})})
    await _used(own, "one", "two")
    features.lower(own.bootstrap_servers, FEATURE, 1)
    await _used(own, "one")
    features.upgrade(own.bootstrap_servers, FEATURE, SELF_ADDING)
    await _used(own, "one")

    features.lower(own.bootstrap_servers, FEATURE, 0)
    assert await _refusal(own, "one") == str(TransactionVersionError("one"))
    _restart(own)
    assert await _refusal(own, "two") == str(TransactionVersionError("two"))
    features.upgrade(own.bootstrap_servers, FEATURE, SELF_ADDING)
    assert "was lowered to 0 and brokers were not restarted since" in await _refusal(own, "two", 2)
    _restart(own)
    await _used(own, "one", "two", "new")

    assert _values(own) == ["one", "two", "one", "one", "one", "two", "new"]


@pytest.mark.long
def test_under_load(own: EmbeddedBroker, tmp_path: Path) -> None:
    """Log and status name the cause and the remedy. After the remedy each message is accepted once."""
    name, bootstrap = "lowered", own.bootstrap_servers
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": PARTITIONS}])
    worker = WorkerProcess(config, "w1")
    half = threading.Event()
    producing = threading.Thread(target=_produce, args=(bootstrap, name, half))
    try:
        worker.start()
        worker.wait_ready()
        producing.start()
        assert half.wait(kafka.WAIT_S)
        features.lower(bootstrap, FEATURE, 0)
        producing.join(kafka.WAIT_S)
        wait_for(lambda: _refused_lanes(worker) == PARTITIONS, lambda: worker.log()[-3_000:], 120)
        done = run_verb("status", "--json", "--config", str(config), check=False)
        [found] = [load for load in json.loads(done.stdout)["findings"] if FEATURE in load["what"]]

        assert (done.returncode, found["stands"]) == (1, True)
        assert found["where"] == f"lanes {name}-0, {name}-1"
        assert found["do"] == transaction_version.WAY_OUT
        assert (
            found["command"]
            == f"kafka-features.sh --bootstrap-server {bootstrap} {transaction_version.RAISE}"
        )
        assert transaction_version.WAY_OUT in worker.log()

        features.upgrade(bootstrap, FEATURE, SELF_ADDING)
        _restart(own)
        wait_for(
            lambda: kafka.consumed(bootstrap, name, name, PARTITIONS), lambda: worker.log()[-3_000:], 120
        )
        worker.stop()
    finally:
        worker.destroy()
        producing.join(kafka.WAIT_S)

    accepted = kafka.read_all(bootstrap, f"{name}.accepted", PARTITIONS)
    assert sorted(item.value or b"" for item in accepted) == sorted(
        b"%d" % index for index in range(MESSAGES)
    )


def _produce(bootstrap: str, topic: str, half: threading.Event) -> None:
    """Send in small portions, so that transactions are under way all the time."""
    for begin in range(0, MESSAGES, PORTION):
        for partition in range(PARTITIONS):
            numbers = range(begin + partition, begin + PORTION, PARTITIONS)
            group = kafka.at_home(partition, PARTITIONS)
            kafka.send(
                bootstrap,
                topic,
                [Sent(b"%d" % number, group, b"%d" % number) for number in numbers],
                partition,
            )
        if begin >= MESSAGES // 2:
            half.set()


def _refused_lanes(worker: WorkerProcess) -> int:
    _, health = worker.health()
    return sum(
        TransactionVersionError.__name__ in (value["reason"] or "")
        for value in health.get("lanes", {}).values()
    )
