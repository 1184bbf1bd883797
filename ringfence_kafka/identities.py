"""Which topic of a name it is now: Kafka's own IDs of topics (KIP-516), which aiokafka does not know.

Any broker tells, also while others are away. librdkafka asks one, the controller as it knows it; while that one refuses connections it connects
without a pause, some 16,000 times a second, on all of a core.
"""

import asyncio
import base64
import contextlib
import random
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from ringfence_kafka import compact
from ringfence_kafka.compact import INT16, INT32, NO_TAGS, Question, Reader
from ringfence_kafka.errors import named

METADATA: Final = 3
"""Key of the request."""
METADATA_VERSION: Final = 12
"""Of Kafka 3.1. From 10 on there are IDs."""
_ID: Final = struct.Struct("16s")
_NO_ID: Final = bytes(16)
ELSEWHERE_S: Final = 2.0
"""For asking all others of a topic that one broker does not know: one that is frozen would take as long as a request may."""
_UNKNOWN: Final = UnknownTopicOrPartitionError
_ANSWERS: Final = (_UNKNOWN.errno, TopicAuthorizationFailedError.errno)


class TopicIdentity(NamedTuple):
    """Which topic of a name it is."""

    topic_id: str
    """Kafka's own: one that is created again under the same name has another. In base64, as librdkafka writes it: with ``+`` and ``/``."""
    partitions: int


NO_TOPIC: Final = TopicIdentity("", 0)
"""There is none of that name."""

Identities = Mapping[str, TopicIdentity | Exception]


class IdentityQuestions:
    """Asked by one client of aiokafka's."""

    def __init__(self, admin: AIOKafkaAdminClient) -> None:
        """``admin``: started before the first question."""
        self._client: Any = admin._client  # noqa: SLF001 - it has no public way to send a request
        self._answered: int | None = None
        """The broker that answered last. It is asked first: others may know of a new topic a moment earlier or later."""
        self._silent: int | None = None
        """The one that did not in the time of a request, as one that is frozen. It is asked last."""

    async def ask(self, topics: Collection[str]) -> Identities:
        """Of each topic its identity; or that there is none, that this user may not see it, or that it cannot be told. Creates none.

        There is none that no broker knows: of one that was just made they hear one after the other.

        Raises:
            KafkaConnectionError: no broker answers.
        """
        nodes = [each.nodeId for each in self._client.cluster.brokers()]
        random.shuffle(nodes)
        nodes.sort(key=lambda node: (node == self._silent) - (node == self._answered))
        question = _metadata(topics)
        error: KafkaError = NodeNotReadyError("no broker is known")
        for place, node in enumerate(nodes, 1):
            try:
                answers: Identities = await self._client.send(node, question)
            except (KafkaConnectionError, NodeNotReadyError) as refused:
                error = refused
            except KafkaError as silent:  # it had the time of a request; another one is asked next time
                self._silent, error = node, silent
                break
            else:
                self._answered = node
                return await self._with_new_ones(answers, nodes[place:])
        self._answered = None
        raise KafkaConnectionError(f"no broker tells which topics these are: {named(error)}") from error

    async def _with_new_ones(self, answers: Identities, others: Sequence[int]) -> Identities:
        """These answers, and those of other brokers of what is unknown to the one that was asked."""
        found = dict(answers)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ELSEWHERE_S):
                for node in others:
                    unknown = [topic for topic, each in found.items() if isinstance(each, _UNKNOWN)]
                    if not unknown:
                        break
                    with contextlib.suppress(KafkaError):  # it is away: the next one may know
                        found |= await self._client.send(node, _metadata(unknown))
                        if not all(isinstance(found[topic], _UNKNOWN) for topic in unknown):
                            self._answered = node
        return found


def _metadata(topics: Collection[str]) -> Question:
    """The answer: see :data:`Identities`."""
    asked = (_NO_ID + compact.text(each) + NO_TAGS for each in sorted(topics))
    # Neither create any, nor tell what this user may do.
    body = compact.array(asked) + b"\0" + b"\0" + NO_TAGS
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
        for _ in range(3):  # replicas, those in step, those away
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
