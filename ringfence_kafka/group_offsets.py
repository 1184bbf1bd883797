"""What a consumer group has committed, with the text beside each offset; and commits of who is no member of it."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest

_NO_MEMBER: Final = ""


class Committed(NamedTuple):
    """An offset of a group."""

    offset: int
    note: str
    """Kafka calls it metadata."""


async def fetch(
    admin: AIOKafkaAdminClient, group: str, tps: Collection[TopicPartition], coordinator: int
) -> Mapping[TopicPartition, Committed | Exception | None]:
    """What this broker says, which coordinates the group: None = none; an error where it cannot say it of this partition.

    Raises:
        KafkaError: it cannot say anything now, such as while it loads.
    """
    topics = defaultdict(list)
    for tp in tps:
        topics[tp.topic].append(tp.partition)
    request = OffsetFetchRequest(group, list(topics.items()))
    response = await admin._send_request(request, coordinator)  # noqa: SLF001
    if code := getattr(response, "error_code", 0):
        raise for_code(code)(f"the offsets of {group}")
    answers: dict[TopicPartition, Committed | Exception | None] = dict.fromkeys(tps)
    for topic, partitions in response.topics:
        for number, offset, note, code in partitions:
            tp = TopicPartition(topic, number)
            if code:
                answers[tp] = for_code(code)(f"the offset of {group} for {topic}/{number}")
            else:
                answers[tp] = Committed(int(offset), note or "") if offset >= 0 else None
    return answers


async def commit(admin: AIOKafkaAdminClient, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
    """As a client that is no member; Kafka takes it while the group has no members.

    Raises:
        UnknownMemberIdError: it has some.
        KafkaError: it is refused, or nobody answers.
    """
    topics = defaultdict(list)
    for tp, each in offsets.items():
        topics[tp.topic].append((tp.partition, each.offset, each.note))
    coordinator = await admin.find_coordinator(group)
    request = OffsetCommitRequest(
        group,
        OffsetCommitRequest.DEFAULT_GENERATION_ID,
        _NO_MEMBER,
        OffsetCommitRequest.DEFAULT_RETENTION_TIME,
        list(topics.items()),
    )
    response = await admin._send_request(request, coordinator)  # noqa: SLF001
    for topic, partitions in response.topics:
        for number, code in partitions:
            if code:
                raise for_code(code)(f"the offset of {group} for {topic}/{number}")
