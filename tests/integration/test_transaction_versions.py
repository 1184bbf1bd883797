"""Transactions v1 and v2 on a broker: committed records, fenced producers, and the last epoch."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
from aiokafka import TopicPartition
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.transaction import InitProducerIdRequest

from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.process import failpoints
from ringfence_kafka.producer import transaction_v2_requests
from ringfence_kafka.producer.transaction_v2 import TransactionV2
from ringfence_kafka.producer.transactional import FencedError, Outgoing, TransactionalProducer
from tests.support import kafka
from tests.support.brokers import features

GROUP: Final = "transaction-versions"
LAST: Final = 2**15 - 2
"""Last epoch of a transaction. The next one, the largest of its type, is only for the fence."""
AT_ONCE: Final = 50
"""Requests that wait on one connection, where the broker answers one after the other."""


def _producer(bootstrap: str, name: str) -> TransactionalProducer:
    return TransactionalProducer(KafkaSettings(bootstrap_servers=bootstrap), name, name)


async def _write(producer: TransactionalProducer, topic: str, value: str) -> None:
    batches = []
    for partition in (0, 1):
        builder = producer.builder()
        builder.append(timestamp=None, key=b"k", value=value.encode(), headers=[])
        batches.append(Outgoing(topic, partition, builder))
    await producer.transact(batches, {TopicPartition(topic, 0): 1}, GROUP)


def _who(producer: TransactionalProducer) -> tuple[int, int]:
    manager = producer._producer._txn_manager
    return manager.producer_id, manager.producer_epoch


async def _raise_epoch(bootstrap: str, name: str, goal: int) -> None:
    """Initialise a transactional ID until its epoch is ``goal``."""
    producer = _producer(bootstrap, name)
    await producer.fence()
    inner = producer._producer
    node = inner._sender._coordinators[CoordinationType.TRANSACTION]

    async def initialise() -> int:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        answer = await inner.client.send(node, request, group=ConnectionGroup.COORDINATION)
        assert answer.error_code == 0
        return int(answer.producer_epoch)

    _, epoch = _who(producer)
    while epoch < goal:
        count = min(AT_ONCE, goal - epoch)
        epoch = max(await asyncio.gather(*(initialise() for _ in range(count))))
    assert epoch == goal
    await producer.discard()


@pytest.mark.long
@pytest.mark.usefixtures("transactions")
async def test_fenced_in_the_last_epoch(bootstrap: str) -> None:
    """The fence gets another producer ID and continues; the open transaction is never read, and its holder writes nothing more."""
    topic, name = kafka.unique("last-epoch"), kafka.unique("last-epoch")
    kafka.create_topics(bootstrap, {topic: (2, {})})
    other = _producer(bootstrap, kafka.unique("last-epoch"))
    await other.fence()
    await _write(other, topic, "before")
    await other.discard()
    await _raise_epoch(bootstrap, name, LAST - 1)
    former, late = _producer(bootstrap, name), _producer(bootstrap, name)
    await former.fence()
    assert _who(former)[1] == LAST
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hold(_point: str, _lane: str) -> None:
        reached.set()
        await go_on.wait()

    remove = failpoints.install("before-commit", name, hold)
    writing = asyncio.create_task(_write(former, topic, "never"))
    await asyncio.wait_for(reached.wait(), kafka.WAIT_S)
    remove()
    await late.fence()
    assert _who(late)[0] != _who(former)[0]
    for number in range(3):
        await _write(late, topic, f"after {number}")
    go_on.set()
    # Kafka says INVALID_PRODUCER_ID_MAPPING where the ID has another producer ID by now.
    with pytest.raises((FencedError, KafkaError)):
        await writing
    with pytest.raises(
        Exception, match=r"belongs to another producer|InvalidProducerIdMapping|Invalid state|READY|FATAL"
    ):
        await _write(former, topic, "never either")
    await _write(late, topic, "last")
    await asyncio.gather(former.discard(), late.discard())

    read = kafka.read_all(bootstrap, topic, 2)
    values = [
        [(item.value or b"").decode() for item in read if item.partition == number] for number in (0, 1)
    ]
    assert values == [["before", "after 0", "after 1", "after 2", "last"]] * 2


EPOCHS = 2**15


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

    # Before the marker of the abort is written a broker still takes them, for the transaction that the marker then aborts.
    assert [code for code, _ in answer.values()] in ([47], [0])
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
