"""Queries descriptions of topics."""

import asyncio
import time
from collections.abc import Collection, Iterable
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from aiokafka.protocol.metadata import MetadataRequest

from ringfence_kafka.admin.topics import SETTINGS, Described, TopicDescription
from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.errors import TopicError

_WANTED: Final = dict.fromkeys(SETTINGS)
_ASK_AGAIN_S: Final = 0.05


async def partition_counts(
    admin: AIOKafkaAdminClient, topics: Collection[str]
) -> tuple[dict[str, int], list[str]]:
    """Return partition counts, and the topics that this user may not see. Missing topics are in neither."""
    # Not admin.describe_topics(): with automatic creation, that request would create missing topics.
    request = MetadataRequest(list(topics), allow_auto_topic_creation=False)
    response = await internals.send_request(admin, request)
    answers = response.to_object()["topics"]
    counts = {
        answer["topic"]: len(answer["partitions"])
        for answer in answers
        if answer["error_code"] == 0 and answer["partitions"]
    }
    refused = [
        answer["topic"] for answer in answers if answer["error_code"] == TopicAuthorizationFailedError.errno
    ]
    return counts, refused


async def describe(admin: AIOKafkaAdminClient, topics: Iterable[str]) -> Described:
    """Describe topics. Missing topics are in neither part of the answer.

    A new or deleted topic is also in neither part if one broker lists it and the broker that is asked for its settings does not know it.
    """
    counts, refused = await partition_counts(admin, sorted(set(topics)))
    if not counts:
        return Described({}, frozenset(refused))
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, configs=_WANTED) for name in counts]
    configs, unknown = {}, set()
    for response in await admin.describe_configs(resources):
        for error_code, _message, _type, name, entries in response.resources:
            if error_code == 0:
                configs[name] = {entry[0]: entry[1] for entry in entries}
            elif error_code == UnknownTopicOrPartitionError.errno:
                unknown.add(name)
    found = {
        name: TopicDescription(name, count, configs.get(name))
        for name, count in counts.items()
        if name not in unknown
    }
    return Described(found, frozenset(refused))


async def appeared(
    admin: AIOKafkaAdminClient, topics: Collection[str], limit_s: float
) -> dict[str, TopicDescription]:
    """Describe new topics when all of them are visible: brokers' metadata contain them a moment after their creation.

    Raises:
        TopicError: one is not visible within the limit.
        TopicAuthorizationFailedError: this user may not see one.
    """
    deadline = time.monotonic() + limit_s
    while True:
        found, refused = await describe(admin, topics)
        if refused:
            raise TopicAuthorizationFailedError(", ".join(sorted(refused)))
        if not (missing := set(topics) - found.keys()):
            return found
        if time.monotonic() > deadline:
            raise TopicError(
                f"{', '.join(sorted(missing))} was created, but no broker shows it after {limit_s:g} s: see "
                "what keeps the cluster busy, and start again"
            )
        await asyncio.sleep(_ASK_AGAIN_S)
