"""``transaction.version`` is lowered while Ringfence uses it: refusals, their text, and the remedy."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.producer import transaction_version
from ringfence_kafka.producer.transaction_v2_requests import FEATURE
from ringfence_kafka.producer.transactional import Outgoing, TransactionalProducer, TransactionVersionError
from tests.support import kafka
from tests.support.brokers import features


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


@pytest.mark.long
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
