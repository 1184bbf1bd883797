"""Kafka's topic IDs (KIP-516), which aiokafka does not know: they identify the present topic of a name.

Any broker returns them, even while others are unavailable. librdkafka asks only the controller that it knows. While that broker refuses
connections, librdkafka reconnects without a pause, about 16,000 times a second, and uses a whole core.
"""

import asyncio
import base64
import contextlib
import random
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.errors import named
from ringfence_kafka.protocol import flexible_requests
from ringfence_kafka.protocol.flexible_requests import INT16, INT32, NO_TAGS, Question, Reader

METADATA: Final = 3
"""API key of the request."""
METADATA_VERSION: Final = 12
"""Version in Kafka 3.1. Responses have IDs from version 10."""
_ID: Final = struct.Struct("16s")
_NO_ID: Final = bytes(16)
_ANSWERS: Final = (UnknownTopicOrPartitionError.errno, TopicAuthorizationFailedError.errno)
_NONE: Final = ""
ANSWER_S: Final = 3.0
"""Limit for each broker except the last, in seconds: a frozen or unreachable one would use up the request time-out."""
ELSEWHERE_S: Final = 2.0
"""Limit for all other brokers, which are asked at the same time about doubtful topics, in seconds."""


class TopicIdentity(NamedTuple):
    """Identity of a topic: its ID and partition count."""

    topic_id: str
    """Kafka's topic ID; a topic that is created again gets another one. In base64 as in librdkafka, with ``+`` and ``/``."""
    partitions: int


NO_TOPIC: Final = TopicIdentity("", 0)
"""Identity of a missing topic."""

Identities = Mapping[str, TopicIdentity | Exception]


class IdentityQuestions:
    """Queries for topic IDs through one aiokafka client.

    Brokers learn one after the other that a topic was created or deleted, and a broker without a connection to the controllers still
    answers. The broker that answered last is therefore asked first and trusted. A change from another broker is trusted if all answering
    brokers agree.
    """

    def __init__(self, admin: AIOKafkaAdminClient) -> None:
        """Create the queries. ``admin`` must be started before the first one."""
        self._client = internals.client_of(admin)
        self._believed: int | None = None
        """Broker that gave the last answer."""
        self._silent: set[int] = set()
        """Brokers that did not answer in time, such as frozen or unreachable ones. They are asked last."""
        self._told: dict[str, str] = {}
        """Last trusted ID of each topic; :data:`_NONE` = the topic was deleted."""

    async def identify(self, topics: Collection[str]) -> Identities:
        """Return each topic's identity, or the error: missing topic, no access, or no reliable answer. Creates no topic.

        Raises:
            KafkaConnectionError: no broker answers.
        """
        nodes = [broker.nodeId for broker in self._client.cluster.brokers()]
        random.shuffle(nodes)
        nodes.sort(key=lambda node: (node in self._silent) - (node == self._believed))
        error: Exception = NodeNotReadyError("no broker is known")
        for node in nodes:
            try:
                async with asyncio.timeout(None if node == nodes[-1] else ANSWER_S):
                    answers: Identities = await self._client.send(node, _metadata(topics))
            except TimeoutError as silent:
                self._silent.add(node)
                error = silent
            except KafkaError as refused:
                error = refused
            else:
                self._silent.discard(node)
                return await self._judged(node, answers, [item for item in nodes if item != node])
        self._believed = None
        raise KafkaConnectionError(f"no broker reports the topic IDs: {named(error)}") from error

    async def _judged(self, node: int, answers: Identities, others: Collection[int]) -> Identities:
        """Return a broker's answers, after other brokers were asked about doubtful ones."""
        before, self._believed = self._believed, node
        found = dict(answers)
        if doubtful := [
            topic
            for topic, answer in answers.items()
            if self._is_doubtful(topic, _id(answer), node == before)
        ]:
            asked = await asyncio.gather(*(self._ask_within(other, doubtful) for other in others))
            replies = [(node, answers), *((other, said) for other, said in zip(others, asked, strict=True))]
            believed = set()
            for topic in doubtful:
                answered = [(number, said[topic]) for number, said in replies if topic in said]
                who, found[topic] = self._settled(topic, answered)
                believed.add(who)
            self._believed = believed.pop() if len(believed) == 1 else None
        for topic, item in found.items():
            known = _id(item)
            if known or (known == _NONE and topic in self._told):
                self._told[topic] = known
        return found

    def _is_doubtful(self, topic: str, known: str | None, as_before: bool) -> bool:
        """Return whether one broker is not enough, because it may not know the newest state of the topic."""
        if known is None:
            return False
        if topic not in self._told:
            return known == _NONE
        return known != self._told[topic] and not as_before

    async def _ask_within(self, node: int, topics: Collection[str]) -> Identities:
        with contextlib.suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(ELSEWHERE_S):
                answers: Identities = await self._client.send(node, _metadata(topics))
                return answers
        return {}

    def _settled(
        self, topic: str, replies: Sequence[tuple[int, TopicIdentity | Exception]]
    ) -> tuple[int | None, TopicIdentity | Exception]:
        """Combine the brokers' answers about a topic. Return the broker to trust from now on, and the answer."""
        known = self._told.get(topic)
        said = {_id(item) for _, item in replies} - {None}
        if known is None and said != {_NONE}:
            said.discard(_NONE)  # the topic is new, and some brokers do not know it yet
        if len(said) == 1:
            return next((node, item) for node, item in replies if _id(item) in said)
        return (
            next((node for node, item in replies if _id(item) == known), None),
            KafkaConnectionError(f"brokers do not agree on the ID of topic {topic}: some do not know it yet"),
        )


def _id(answer: TopicIdentity | Exception) -> str | None:
    if isinstance(answer, TopicIdentity):
        return answer.topic_id
    return _NONE if isinstance(answer, UnknownTopicOrPartitionError) else None


def _metadata(topics: Collection[str]) -> Question:
    asked = (_NO_ID + flexible_requests.text(topic) + NO_TAGS for topic in sorted(topics))
    # Create no topics, and return no access rights.
    body = flexible_requests.array(asked) + b"\0" + b"\0" + NO_TAGS
    return Question(METADATA, METADATA_VERSION, body, _read)


def _read(reader: Reader) -> Identities:
    reader.unpack(INT32)
    for _ in reader.array():  # brokers
        reader.unpack(INT32)
        reader.text()
        reader.unpack(INT32)
        reader.text()
        reader.skip_tags()
    reader.text()
    reader.unpack(INT32)
    return dict(_read_topic(reader) for _ in reader.array())


def _read_topic(reader: Reader) -> tuple[str, TopicIdentity | Exception]:
    (error_code,) = reader.unpack(INT16)
    name = reader.text()
    (topic_id,) = reader.unpack(_ID)
    reader.at += 1  # whether it is internal
    partitions = reader.array()
    for _ in partitions:
        reader.at += INT16.size + 3 * INT32.size  # error, number, leader and its epoch
        for _ in range(3):  # replicas, in-sync replicas, offline replicas
            numbers = len(reader.array())
            reader.at += INT32.size * numbers
        reader.skip_tags()
    reader.unpack(INT32)
    reader.skip_tags()
    if not error_code:
        return name, TopicIdentity(base64.b64encode(topic_id).decode().rstrip("="), len(partitions))
    error = for_code(error_code)
    if error_code in _ANSWERS:
        return name, error(name)
    return name, KafkaConnectionError(f"the topic {name} cannot be looked up: {error.__name__}")
