"""Double of aiokafka's client for transactions in the product's own requests, which are objects instead of bytes."""

import asyncio
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.client import ConnectionGroup
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    ProducerFenced,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from ringfence_kafka.producer import transaction_v2_requests
from ringfence_kafka.producer.transaction_v2_requests import Ended, Place, Producer
from tests.simulator.kafka.transactions import Who

ID: Final = 1
"""Producer ID of all producers; only their transactional IDs differ."""
FENCED: Final = 90
"""PRODUCER_FENCED, the coordinator's code; partitions answer INVALID_PRODUCER_EPOCH, which means the same."""


class Metadata:
    """Leaders of partitions."""

    def __init__(self, brokers: int) -> None:
        self._brokers = brokers

    @staticmethod
    def partitions_for_topic(_topic: str) -> None:
        """Return nothing: aiokafka finds out by itself."""

    def leader_for_partition(self, place: TopicPartition) -> int:
        """Return the leader; a single broker leads everything, the group's coordinator included."""
        return zlib.crc32(f"{place.topic}/{place.partition}".encode()) % self._brokers


class Asked(NamedTuple):
    """A request."""

    apply: Callable[..., Any]
    args: tuple[Any, ...]
    refused: Callable[[int], Any]

    @property
    def API_KEY(self) -> int:  # noqa: N802 - Kafka's name
        return hash(self.apply)


class Questions:
    """Makers of requests."""

    FEATURE, SELF_ADDING = transaction_v2_requests.FEATURE, transaction_v2_requests.SELF_ADDING

    @staticmethod
    def api_versions(_name: str, _version: str) -> Asked:
        return Asked(features, (), lambda _: transaction_v2_requests.Features({}, {}))

    @staticmethod
    def produce(transactional_id: str, _timeout_ms: int, batches: Mapping[Place, Any]) -> Asked:
        return Asked(produce, (transactional_id, batches), lambda code: dict.fromkeys(batches, (code, -1)))

    @staticmethod
    def commit_offsets(
        transactional_id: str, _group_id: str, producer: Producer, committed: Mapping[Place, int]
    ) -> Asked:
        who = Who(transactional_id, producer.epoch, implicit=True)
        return Asked(offsets, (who, committed), lambda code: dict.fromkeys(committed, code))

    @staticmethod
    def end(transactional_id: str, producer: Producer, *, commit: bool) -> Asked:
        who = Who(transactional_id, producer.epoch, implicit=True)
        return Asked(end, (who, commit), lambda code: Ended(code, Producer(-1, -1)))


async def send(_node: int, asked: Asked, *, group: ConnectionGroup = ConnectionGroup.DEFAULT) -> Any:
    """Send a request as aiokafka's client does. An answer in which all is refused is an answer."""
    if not isinstance(asked, Asked):
        raise KafkaConnectionError("no answer")  # a request of aiokafka's own: its fate is known
    loop: Any = asyncio.get_running_loop()
    process = loop.process
    try:
        return await process.network.call(asked.apply, process.cluster, *asked.args)
    except KafkaConnectionError:
        raise
    except KafkaError as error:
        return asked.refused(_code(error))


# -- in the cluster --------------------------------------------------------------------------------------------


def features(cluster: Any) -> transaction_v2_requests.Features:
    level = (
        transaction_v2_requests.SELF_ADDING if cluster.implicit else transaction_v2_requests.SELF_ADDING - 1
    )
    return transaction_v2_requests.Features(
        {transaction_v2_requests.FEATURE: level},
        {transaction_v2_requests.FEATURE: transaction_v2_requests.SELF_ADDING},
    )


def produce(cluster: Any, name: str, batches: Mapping[Place, Any]) -> dict[Place, tuple[int, int]]:
    answers = {}
    for (topic, partition), builder in batches.items():
        try:
            if topic in cluster.refused:
                raise TopicAuthorizationFailedError(topic)
            log = cluster.log(topic, partition)
            log.made_at = builder.made_at
            who = Who(name, builder.epoch, implicit=True, by=builder.by)
            answers[topic, partition] = (
                0,
                cluster.transactions.produce(who, builder.sequence, log, builder.records),
            )
        except KafkaError as error:
            answers[topic, partition] = _code(error), -1
    return answers


def offsets(cluster: Any, who: Who, committed: Mapping[Place, int]) -> dict[Place, int]:
    for topic, partition in committed:
        if topic not in cluster.topics or partition >= len(cluster.topics[topic].logs):
            return dict.fromkeys(committed, UnknownTopicOrPartitionError.errno)
    cluster.transactions.offsets(who, committed)
    return dict.fromkeys(committed, 0)


def end(cluster: Any, who: Who, commit: bool) -> Ended:
    return Ended(0, Producer(ID, cluster.transactions.end(who, commit)))


def _code(error: KafkaError) -> int:
    return FENCED if isinstance(error, ProducerFenced) else int(error.errno)
