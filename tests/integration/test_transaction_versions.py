"""Transactions v1 and v2 on a broker: committed records, fenced producers, and the last epoch."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.producer import transaction_v2_requests
from ringfence_kafka.producer.transaction_v2 import TransactionV2
from ringfence_kafka.producer.transactional import FencedError, Outgoing, TransactionalProducer
from tests.support import kafka
from tests.support.brokers import features

GROUP: Final = "transaction-versions"


def _producer(bootstrap: str, name: str) -> TransactionalProducer:
    return TransactionalProducer(KafkaSettings(bootstrap_servers=bootstrap), name, name)


def _who(producer: TransactionalProducer) -> tuple[int, int]:
    manager = producer._producer._txn_manager
    return manager.producer_id, manager.producer_epoch


EPOCHS: Final = 2**15
INVALID_PRODUCER_EPOCH: Final = 47
INVALID_TXN_STATE: Final = 48


def _batch(producer: TransactionalProducer, topic: str, value: str, partition: int = 0) -> Outgoing:
    builder = producer.builder()
    builder.append(timestamp=None, key=b"k", value=value.encode(), headers=[("h", b"v")])
    return Outgoing(topic, partition, builder)


async def _write_twice(producer: TransactionalProducer, topic: str, *values: str) -> list[int]:
    """Write each value twice, to two partitions, and the last once more to the first."""
    batches = [_batch(producer, topic, value, number) for value in values for number in (0, 1)]
    return await producer.transact(batches, {TopicPartition(topic, 0): len(values)}, GROUP)


def _read(bootstrap: str, topic: str) -> list[list[str]]:
    read = kafka.read_all(bootstrap, topic, 2)
    return [[(item.value or b"").decode() for item in read if item.partition == number] for number in (0, 1)]


def _topic(bootstrap: str) -> str:
    topic = kafka.unique("ways")
    kafka.create_topics(bootstrap, {topic: (2, {})})
    return topic


async def test_what_the_cluster_has_is_used(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    has = (
        features.levels(bootstrap).get(transaction_v2_requests.FEATURE, 0)
        >= transaction_v2_requests.SELF_ADDING
    )
    ways = []
    for text in ("on", "off"):
        monkeypatch.setenv("RINGFENCE_TRANSACTIONS_V2", text)
        producer = _producer(bootstrap, kafka.unique("ways"))
        await producer.fence()
        ways.append(isinstance(producer._transactions, TransactionV2))
        await producer.discard()

    assert ways == [has, False]


@pytest.mark.usefixtures("transactions")
async def test_transactions_follow_one_another(bootstrap: str) -> None:
    """All committed records are there once when transactions follow at once, one of them aborted between.

    They have several batches of a partition in order.
    """
    topic = _topic(bootstrap)
    producer = _producer(bootstrap, kafka.unique("ways"))
    await producer.fence()
    bases = [await _write_twice(producer, topic, f"{number}a", f"{number}b") for number in range(5)]
    await producer.prime([(topic, 0)])
    bases.append(await _write_twice(producer, topic, "last"))
    await producer.discard()
    expected = [f"{number}{name}" for number in range(5) for name in "ab"] + ["last"]

    assert _read(bootstrap, topic) == [expected, expected]
    assert [base[:4] for base in bases[:2]] == [[0, 0, 1, 1], [3, 3, 4, 4]]  # a marker between


@pytest.mark.parametrize(
    "lost",
    [
        transaction_v2_requests.PRODUCE,
        transaction_v2_requests.TXN_OFFSET_COMMIT,
        transaction_v2_requests.END_TXN,
    ],
)
async def test_lost_answers(bootstrap: str, monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    """A request whose answer is lost is repeated, and takes effect once."""
    features.require(bootstrap, transaction_v2_requests.FEATURE)
    topic = _topic(bootstrap)
    producer = _producer(bootstrap, kafka.unique("ways"))
    await producer.fence()
    send: Callable[..., Any] = producer._producer.client.send
    dropped = 0

    async def lose(node: int, question: Any, **options: Any) -> Any:
        nonlocal dropped
        answer = await send(node, question, **options)
        if lost == question.API_KEY and dropped < 2:
            dropped += 1
            raise KafkaConnectionError("lost")
        return answer

    monkeypatch.setattr(producer._producer.client, "send", lose)
    bases = [await _write_twice(producer, topic, name) for name in ("one", "two")]
    await producer.discard()

    assert dropped == 2
    assert _read(bootstrap, topic) == [["one", "two"]] * 2
    assert bases == [[0, 0], [2, 2]]


async def test_late_records_of_an_aborted_transaction(bootstrap: str) -> None:
    """No later transaction contains records that were still on their way when theirs was aborted."""
    features.require(bootstrap, transaction_v2_requests.FEATURE)
    topic = _topic(bootstrap)
    producer = _producer(bootstrap, kafka.unique("ways"))
    await producer.fence()
    way = producer._transactions
    assert isinstance(way, TransactionV2)
    late = _batch(producer, topic, "late")
    late.builder._set_producer_state(*way._who, 1)
    data = {(topic, 0): late.builder._build()}
    await producer.prime([(topic, 0)])
    node = way._leader(late)
    assert node is not None
    answer = await way._ask_leader(node, data)
    await _write_twice(producer, topic, "after")
    await producer.discard()

    # Before the marker of the abort is written a broker may still append them to the transaction that the marker then aborts.
    # If the marker comes between the broker's check and the append, the broker answers that no transaction is open.
    assert [code for code, _ in answer.values()] in ([INVALID_PRODUCER_EPOCH], [INVALID_TXN_STATE], [0])
    assert _read(bootstrap, topic) == [["after"]] * 2


@pytest.mark.long
async def test_epochs_run_out(bootstrap: str) -> None:
    """The coordinator gives out another producer ID after 32,767 transactions, and a lost answer then loses nothing.

    A busy lane makes them in some minutes.
    """
    features.require(bootstrap, transaction_v2_requests.FEATURE)
    topic, name = _topic(bootstrap), kafka.unique("ways")
    producer = _producer(bootstrap, name)
    await producer.fence()
    way = producer._transactions
    assert isinstance(way, TransactionV2)
    first, count, lost = way._who, 0, 0
    send: Callable[..., Any] = producer._producer.client.send

    async def lose(node: int, question: Any, **options: Any) -> Any:
        nonlocal lost
        answer = await send(node, question, **options)
        if (
            question.API_KEY == transaction_v2_requests.END_TXN
            and answer.producer.id != way._who.id
            and not lost
        ):
            lost += 1
            raise KafkaConnectionError("lost")
        return answer

    producer._producer.client.send = lose
    while way._who.id == first.id and count < EPOCHS:
        await producer.transact([_batch(producer, topic, str(count))], {}, "")
        count += 1
    for _ in range(3):
        await _write_twice(producer, topic, "after")
    successor = _producer(bootstrap, name)
    await successor.fence()
    with pytest.raises(FencedError):
        await _write_twice(producer, topic, "never")
    await _write_twice(successor, topic, "last")
    await asyncio.gather(producer.discard(), successor.discard())

    assert way._who.id != first.id
    assert lost == 1
    expected = [*map(str, range(count)), *["after"] * 3, "last"]
    assert _read(bootstrap, topic)[0] == expected
