"""Committed offsets of a consumer group with their metadata, and commits without a membership."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest_v3
from aiokafka.protocol.types import Array, Int16, Int32, Int64, Schema, String

from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.protocol.flexible_requests import older_request

_NO_MEMBER: Final = ""
NO_EPOCH: Final = -1


class Committed(NamedTuple):
    """Committed offset of a group."""

    offset: int
    note: str
    """Metadata of the commit."""
    leader_epoch: int = NO_EPOCH
    """Leader epoch of the record before the offset. Consumers commit it with their position; Ringfence and Kafka's tools do not."""


_TEXT: Final = String("utf-8")
_PARTITIONS: Final = Array(
    ("partition", Int32),
    ("offset", Int64),
    ("leader_epoch", Int32),
    ("metadata", _TEXT),
    ("error_code", Int16),
)


_Fetch: Final = older_request(
    9,
    5,
    OffsetFetchRequest_v3.SCHEMA,
    Schema(
        ("throttle_time_ms", Int32),
        ("topics", Array(("topic", _TEXT), ("partitions", _PARTITIONS))),
        ("error_code", Int16),
    ),
)
"""Query for offsets with leader epochs, which aiokafka does not request."""


async def fetch(
    admin: AIOKafkaAdminClient, group: str, tps: Collection[TopicPartition], coordinator: int
) -> Mapping[TopicPartition, Committed | Exception | None]:
    """Query committed offsets from the group's coordinator: None = no offset; an error = it cannot answer for that partition.

    Raises:
        KafkaError: the coordinator cannot answer now, for example while it loads.
    """
    topics = defaultdict(list)
    for tp in tps:
        topics[tp.topic].append(tp.partition)
    response = await internals.send_request(admin, _Fetch(group, list(topics.items())), coordinator)
    if response.error_code:
        raise for_code(response.error_code)(f"the offsets of {group}")
    answers: dict[TopicPartition, Committed | Exception | None] = dict.fromkeys(tps)
    for topic, partitions in response.topics:
        for number, offset, epoch, note, code in partitions:
            if code:
                error = for_code(code)(f"the offset of {group} for {topic}/{number}")
                answers[TopicPartition(topic, number)] = error
            elif offset >= 0:
                answers[TopicPartition(topic, number)] = Committed(offset, note or "", epoch)
    return answers


async def commit(admin: AIOKafkaAdminClient, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
    """Commit offsets as a client outside the group. Kafka accepts this while the group has no members.

    Raises:
        UnknownMemberIdError: the group has members.
        KafkaError: the commit is refused, or no broker answers.
    """
    topics = defaultdict(list)
    for tp, offset in offsets.items():
        topics[tp.topic].append((tp.partition, offset.offset, offset.note))
    coordinator = await admin.find_coordinator(group)
    request = OffsetCommitRequest(
        group,
        OffsetCommitRequest.DEFAULT_GENERATION_ID,
        _NO_MEMBER,
        OffsetCommitRequest.DEFAULT_RETENTION_TIME,
        list(topics.items()),
    )
    response = await internals.send_request(admin, request, coordinator)
    for topic, partitions in response.topics:
        for number, code in partitions:
            if code:
                raise for_code(code)(f"the offset of {group} for {topic}/{number}")
