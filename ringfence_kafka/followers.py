"""Fetching from a follower (``client.rack``, KIP-392): what it does not have, the leader is asked for, as Java's client does it."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import NotLeaderForPartitionError, OffsetOutOfRangeError
from aiokafka.protocol.fetch import FetchRequest

log: Final = logging.getLogger("ringfence.kafka")

_send: Final[Callable[..., Coroutine[Any, Any, Any]]] = AIOKafkaClient.send


def _followed(client: Any, node: int, request: Any) -> set[TopicPartition]:
    """The partitions of a fetch that this broker does not lead, as far as is known."""
    if not isinstance(request, FetchRequest) or not request._rack_id:  # noqa: SLF001
        return set()
    asked = (TopicPartition(topic, each[0]) for topic, partitions in request.topics for each in partitions)
    return {tp for tp in asked if client.cluster.leader_for_partition(tp) != node}


def _refused(
    node: int, followed: set[TopicPartition], topic: str, partition: tuple[Any, ...]
) -> tuple[Any, ...]:
    number, code, *rest = partition
    if code != OffsetOutOfRangeError.errno or TopicPartition(topic, number) not in followed:
        return partition
    log.info(
        "broker %d follows %s/%d, and has not what was asked for: the leader is asked", node, topic, number
    )
    return (number, NotLeaderForPartitionError.errno, *rest)


async def _send_fetch(client: Any, node: int, request: Any, **given: Any) -> Any:
    """A follower that begins anew, or is behind, has not the offset; that says nothing of the log.

    aiokafka takes its word: it reads on from the log's beginning, or ends with an error. Told that this is not the leader, it asks that.
    """
    followed = _followed(client, node, request)
    response = await _send(client, node, request, **given)
    if followed:
        response.topics = [
            (topic, [_refused(node, followed, topic, each) for each in partitions])
            for topic, partitions in response.topics
        ]
    return response


def install() -> None:
    """Have the clients of this process fetch so; aiokafka has no other way in."""
    AIOKafkaClient.send = _send_fetch
