"""Queries about topics, and their creation."""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest

from ringfence_kafka.admin.connection import Connection
from ringfence_kafka.admin.topic_ids import Identities, IdentityQuestions, TopicIdentity
from ringfence_kafka.admin.topics import SETTINGS, Described, TopicDescription
from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.concurrency.coalesce import RequestCoalescer
from ringfence_kafka.errors import TopicError, named
from ringfence_kafka.wording import counted

_AGAIN_S: Final = 0.05


class _Refused:
    """Answer for a topic that this user may not see."""


class TopicAdmin:
    """Topics of one cluster. Simultaneous queries share one request."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._descriptions = RequestCoalescer(self._ask_descriptions)
        self._identities = RequestCoalescer(self._ask_identities)
        self._questions: IdentityQuestions | None = None

    async def stop(self) -> None:
        """Stop. Waiting queries raise StoppedError."""
        await self._identities.stop()
        await self._descriptions.stop()

    async def partition_counts(self, topics: list[str]) -> dict[str, int]:
        """Return present partition counts. Missing topics are absent.

        Raises:
            TopicAuthorizationFailedError: this user may not see a topic.
        """
        counts, refused = await partition_counts(self._connection.admin, topics)
        if refused:
            raise TopicAuthorizationFailedError(", ".join(refused))
        return counts

    async def describe(self, topics: Iterable[str]) -> Described:
        """Return descriptions of topics with their settings."""
        names = sorted(set(topics))
        answers = zip(names, await asyncio.gather(*map(self._descriptions.answer, names)), strict=True)
        found = {name: item for name, item in answers if item is not None}
        topics = {name: item for name, item in found.items() if isinstance(item, TopicDescription)}
        return Described(topics, frozenset(found.keys() - topics.keys()))

    async def _ask_descriptions(
        self, topics: Collection[str]
    ) -> Mapping[str, TopicDescription | _Refused | Exception | None]:
        described = await describe(self._connection.admin, topics)
        refused = dict.fromkeys(described.refused, _Refused())
        return dict.fromkeys(topics) | described.topics | refused

    async def create(
        self, topic: str, partitions: int, replication_factor: int, config: dict[str, str]
    ) -> None:
        """Create a topic. Succeeds if it already exists. ``replication_factor`` 0 = the number of brokers, at most 3.

        Raises:
            TopicError: the cluster refuses.
        """
        admin = self._connection.admin
        if not replication_factor:
            replication_factor = min(3, len((await admin.describe_cluster())["brokers"]))
        response = await admin.create_topics(
            [NewTopic(topic, partitions, replication_factor, topic_configs=config)]
        )
        for _, code, *rest in response.topic_errors:
            error = for_code(code)
            if code and error is not TopicAlreadyExistsError:
                said = f"{error.__name__}: {rest[0]}" if rest and rest[0] else error.__name__
                raise TopicError(
                    f"{topic} was not created with {counted(partitions, 'partition')} ({said}): allow this user to create topics, "
                    "or have somebody create it"
                )

    async def await_created(self, topics: list[str], limit_s: float) -> dict[str, TopicDescription]:
        """Describe new topics when all of them are visible. Raises as :func:`appeared`."""
        return await appeared(self._connection.admin, topics, limit_s)

    async def add_partitions(self, topic: str, count: int, limit_s: float) -> None:
        """Increase the partition count of a topic to ``count``; return when the brokers report it.

        Raises:
            TopicError: the cluster refuses, or reports it too late.
        """
        try:
            await self._connection.admin.create_partitions({topic: NewPartitions(count)})
        except BrokerResponseError as error:
            denied = isinstance(error, TopicAuthorizationFailedError | ClusterAuthorizationFailedError)
            do = "allow this user Alter on it" if denied else "look at the brokers and run this again"
            raise TopicError(
                f"{topic} was not given {counted(count, 'partition')} ({named(error)}): {do}, or have somebody do it: "
                f"kafka-topics.sh --alter --topic {topic} --partitions {count}"
            ) from error
        deadline = time.monotonic() + limit_s
        while (shown := (await self.partition_counts([topic])).get(topic, 0)) < count:
            if time.monotonic() > deadline:
                raise TopicError(
                    f"{topic} was given {counted(count, 'partition')}, and brokers show {shown} after {limit_s:g} s: see what keeps the cluster busy, "
                    "and run this again"
                )
            await asyncio.sleep(_AGAIN_S)

    async def ids(self, topics: list[str]) -> dict[str, str]:
        """Return Kafka's IDs of existing topics. Raises as :meth:`identity`."""
        identities = await asyncio.gather(*map(self.identity, topics))
        return {topic: item.topic_id for topic, item in zip(topics, identities, strict=True)}

    async def identity(self, topic: str) -> TopicIdentity:
        """Return the identity of the present topic with this name, with one small request that never creates a topic.

        Raises:
            UnknownTopicOrPartitionError: no such topic exists.
            TopicAuthorizationFailedError: this user may not see it.
            KafkaConnectionError: no broker answers.
        """
        return await self._identities.answer(topic)

    async def _ask_identities(self, topics: Collection[str]) -> Identities:
        if self._questions is None:
            self._questions = IdentityQuestions(self._connection.admin)
        return await self._questions.identify(topics)


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
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, name, configs=dict.fromkeys(SETTINGS)) for name in counts
    ]
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
        await asyncio.sleep(_AGAIN_S)
