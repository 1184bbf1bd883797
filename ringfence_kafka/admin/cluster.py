"""Questions that a lane asks the cluster: watermarks, log starts, committed offsets, partition counts."""

import asyncio
import contextlib
import time
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupIdNotFound,
    GroupLoadInProgressError,
    KafkaError,
    NotCoordinatorForGroupError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest

from ringfence_kafka.admin import topic_descriptions
from ringfence_kafka.admin.offsets import FIRST, NEXT, STABLE, Offsets
from ringfence_kafka.admin.topic_ids import IdentityQuestions, TopicIdentity
from ringfence_kafka.admin.topics import Described, TopicDescription
from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.auth.access_errors import nobody
from ringfence_kafka.auth.client_options import client_options, refusal
from ringfence_kafka.concurrency.coalesce import RequestCoalescer
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import BrokerUnavailableError, TopicError, named
from ringfence_kafka.groups import committed_offsets, descriptions, foreign_members, members
from ringfence_kafka.groups import static_members as static
from ringfence_kafka.groups.committed_offsets import Committed
from ringfence_kafka.groups.descriptions import GroupDescription
from ringfence_kafka.groups.foreign_members import ForeignMember, IsOurs

COORDINATOR_LIMIT_S: Final = 20.0
DEAD: Final = "Dead"
NO_MEMBERS: Final = frozenset({"Empty", DEAD})
"""States of a consumer group of which no consumer runs."""
_ELSEWHERE: Final = (NotCoordinatorForGroupError, GroupCoordinatorNotAvailableError)


class _Refused:
    """This user may not see the topic."""


class Cluster:
    """One connection for all lanes of a worker; what they ask at the same time is asked once."""

    def __init__(self, kafka: KafkaSettings, group_id: str) -> None:
        self.kafka = kafka
        self.group_id = group_id
        self._committed = RequestCoalescer(self._ask_committed)
        self._descriptions = RequestCoalescer(self._ask_descriptions)
        self._coordinator: int | None = None
        """The broker that coordinated the group when it was asked last."""

    async def start(self) -> None:
        """Connect. May be repeated after it failed.

        Raises:
            BrokerUnavailableError: nobody answers, or all deny access.
        """
        options = client_options(self.kafka)
        self._consumer = AIOKafkaConsumer(**options)
        self._offsets = Offsets(self._consumer._client)
        self._admin = AIOKafkaAdminClient(**options)
        self._identities = RequestCoalescer(IdentityQuestions(self._admin).ask)
        for item in (self._consumer, self._admin):
            internals.never_create(item)
        try:
            await self._consumer.start()
            await self._admin.start()
        except (KafkaError, OSError) as error:
            await self._disconnect()
            raise await refusal(self.kafka) or nobody(self.kafka) from error

    async def stop(self) -> None:
        """Disconnect, and answer nobody any more."""
        await self._committed.stop()
        await self._identities.stop()
        await self._descriptions.stop()
        await self._offsets.stop()
        await self._disconnect()

    async def _disconnect(self) -> None:
        await self._consumer.stop()
        await self._admin.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def ping(self) -> None:
        """Returns when a broker answers."""
        await self._admin._send_request(MetadataRequest([], allow_auto_topic_creation=False))

    async def denied(self) -> BrokerUnavailableError | None:
        """Who does not let us in any more, and why; None if nobody is there."""
        return await refusal(self.kafka, was_in=True)

    async def high_watermark(self, topic: str, partition: int) -> int:
        """Offset that the next record gets, committed or not.

        Not the last stable offset, which any open transaction holds back: a restore up to there would miss committed records
        behind it.
        """
        return await self._offsets.ask(TopicPartition(topic, partition), NEXT)

    async def stable_end(self, topic: str, partition: int) -> int:
        """Up to where a reader of committed data gets now: an open transaction may hold back more."""
        return await self._offsets.ask(TopicPartition(topic, partition), STABLE)

    async def stable_ends(self, partitions: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The same of many, in one question."""
        asked = (self._offsets.ask(TopicPartition(*partition), STABLE) for partition in partitions)
        return dict(zip(partitions, await asyncio.gather(*asked), strict=True))

    async def known_ends(
        self, partitions: Collection[tuple[str, int]], limit_s: float
    ) -> dict[tuple[str, int], int]:
        """The high watermarks of many, as far as brokers tell them within so many seconds."""
        return await self._known(partitions, NEXT, limit_s)

    async def known_starts(
        self, partitions: Collection[tuple[str, int]], limit_s: float
    ) -> dict[tuple[str, int], int]:
        """The same of what :meth:`log_start` tells."""
        return await self._known(partitions, FIRST, limit_s)

    async def known_stable_ends(
        self, partitions: Collection[tuple[str, int]], limit_s: float
    ) -> dict[tuple[str, int], int]:
        """The same of what :meth:`stable_end` tells."""
        return await self._known(partitions, STABLE, limit_s)

    async def _known(
        self, partitions: Collection[tuple[str, int]], which: int, limit_s: float
    ) -> dict[tuple[str, int], int]:
        found = await self._offsets.known(
            [TopicPartition(*partition) for partition in partitions], which, limit_s
        )
        return {(tp.topic, tp.partition): number for tp, number in found.items()}

    async def known_commits(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], int | None]:
        """The group's offsets of many, asked for now; None = none. Absent where the coordinator cannot say.

        Raises:
            KafkaError: it cannot say anything now.
        """
        if not partitions:
            return {}
        found = await self._ask_committed([TopicPartition(*partition) for partition in partitions])
        return {
            (tp.topic, tp.partition): None if item is None else item.offset
            for tp, item in found.items()
            if not isinstance(item, Exception)
        }

    async def log_start(self, topic: str, partition: int) -> int:
        """Offset of the oldest record that retention left."""
        return await self._offsets.ask(TopicPartition(topic, partition), FIRST)

    async def committed(self, topic: str, partition: int) -> int | None:
        """The group's committed offset, asked for now; None = none.

        Raises:
            KafkaError: the group's coordinator cannot say, such as while it loads; aiokafka's own question would then say
                that there is none.
        """
        found = await self.noted(topic, partition)
        return None if found is None else found.offset

    async def noted(self, topic: str, partition: int) -> Committed | None:
        """The same with what was noted beside it. Raises as :meth:`committed` does."""
        return await self._committed.ask(TopicPartition(topic, partition))

    async def note(self, topic: str, offsets: Mapping[int, Committed]) -> None:
        """Commit for the group, which has no members now.

        Raises:
            KafkaError: it has, or its coordinator does not answer.
        """
        named = {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        await committed_offsets.commit(self._admin, self.group_id, named)

    async def _ask_committed(
        self, tps: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | Exception | None]:
        known = self._coordinator
        if known is not None:
            with contextlib.suppress(KafkaError):  # it may be another broker by now
                found = await committed_offsets.fetch(self._admin, self.group_id, tps, known)
                if not any(isinstance(value, _ELSEWHERE) for value in found.values()):
                    return found
        self._coordinator = None
        node = await self._admin.find_coordinator(self.group_id)
        found = await committed_offsets.fetch(self._admin, self.group_id, tps, node)
        self._coordinator = node
        return found

    async def await_coordinator(self) -> None:
        """Until the group's coordinator answers: on a new cluster it is made by the first question, on others it may load.

        Raises:
            BrokerUnavailableError: it does not within the limit.
        """
        deadline = time.monotonic() + COORDINATOR_LIMIT_S
        while True:
            try:
                await self.group_state()
                return
            except (
                GroupCoordinatorNotAvailableError,
                GroupLoadInProgressError,
                NotCoordinatorForGroupError,
            ) as error:
                if time.monotonic() > deadline:
                    raise BrokerUnavailableError(
                        f"the coordinator of the consumer group {self.group_id} does not answer ({type(error).__name__}): "
                        "is the topic __consumer_offsets available?"
                    ) from error
                await asyncio.sleep(0.2)

    async def group_state(self) -> str:
        """``Empty`` or ``Dead`` = the group has no members now, of whatever protocol.

        Raises:
            KafkaError: the group's coordinator cannot say.
        """
        coordinator = await self._admin.find_coordinator(self.group_id)
        (answer,) = await self._admin.describe_consumer_groups([self.group_id], coordinator)
        ((code, _, state, *_),) = answer.groups
        if code and code != GroupIdNotFound.errno:
            raise for_code(code)(f"the state of {self.group_id}")
        if (code or state == DEAD) and await foreign_members.of_other_types(
            self._admin, self.group_id, coordinator
        ):
            return "Stable"  # DescribeGroups calls a group of another type dead
        return DEAD if code else str(state)

    async def members(self) -> members.Members:
        """Who is in the group now, and what each says of itself.

        Raises:
            KafkaError: the group's coordinator cannot say.
        """
        return await members.fetch(self._admin, self.group_id, self.kafka.instance_of)

    async def foreign_members(self, is_ours: IsOurs, group: str | None = None) -> list[ForeignMember]:
        """See :func:`ringfence_kafka.groups.foreign_members.ask`; of our group, or of another one."""
        prefix = f"{self.kafka.client_id_of('')}-"
        try:
            return await foreign_members.ask(self._admin, group or self.group_id, is_ours, prefix)
        except NotImplementedError:  # brokers before 2.4 do not say which they are
            return []

    async def static_members(self) -> list[static.Member]:
        """See :func:`ringfence_kafka.groups.static_members.members`."""
        return await static.members(self._admin, self.group_id)

    async def forget_outdated(self, instance: str, topics: Collection[str]) -> bool:
        """See :func:`ringfence_kafka.groups.static_members.forget_outdated`."""
        return await static.forget_outdated(self._admin, self.group_id, instance, topics)

    async def describe_groups(
        self, groups: Collection[str], *, partial: bool = False
    ) -> dict[str, GroupDescription]:
        """See :func:`ringfence_kafka.groups.descriptions.describe`."""
        if not groups:
            return {}
        return await asyncio.to_thread(descriptions.describe, self.kafka, groups, partial=partial)

    async def await_topics(self, topics: list[str], limit_s: float) -> dict[str, TopicDescription]:
        """What topics are like that were just made. See :func:`ringfence_kafka.admin.topic_descriptions.appeared`."""
        return await topic_descriptions.appeared(self._admin, topics, limit_s)

    async def partition_counts(self, topics: list[str]) -> dict[str, int]:
        """Partition counts asked for now; a topic that does not exist is absent.

        Raises:
            TopicAuthorizationFailedError: we may not even see a topic.
        """
        counts, refused = await topic_descriptions.partition_counts(self._admin, topics)
        if refused:
            raise TopicAuthorizationFailedError(", ".join(refused))
        return counts

    async def describe(self, topics: Iterable[str]) -> Described:
        """What these topics are like, with their settings."""
        names = sorted(set(topics))
        answers = zip(names, await asyncio.gather(*map(self._descriptions.ask, names)), strict=True)
        found = {name: item for name, item in answers if item is not None}
        topics = {name: item for name, item in found.items() if isinstance(item, TopicDescription)}
        return Described(topics, frozenset(found.keys() - topics.keys()))

    async def _ask_descriptions(
        self, topics: Collection[str]
    ) -> Mapping[str, TopicDescription | _Refused | Exception | None]:
        """None = there is none of that name."""
        described = await topic_descriptions.describe(self._admin, topics)
        refused = dict.fromkeys(described.refused, _Refused())
        return dict.fromkeys(topics) | described.topics | refused

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, config: dict[str, str]
    ) -> None:
        """Create a topic; well too if somebody else just did. ``replication_factor`` 0: the smaller of 3 and the brokers.

        Raises:
            TopicError: the cluster refuses it.
        """
        if not replication_factor:
            replication_factor = min(3, len((await self._admin.describe_cluster())["brokers"]))
        response = await self._admin.create_topics(
            [NewTopic(topic, partitions, replication_factor, topic_configs=config)]
        )
        for _, code, *rest in response.topic_errors:
            error = for_code(code)
            if code and error is not TopicAlreadyExistsError:
                said = f"{error.__name__}: {rest[0]}" if rest and rest[0] else error.__name__
                raise TopicError(
                    f"{topic} was not created with {partitions} partitions ({said}): allow this user to create topics, "
                    "or have somebody create it"
                )

    async def add_partitions(self, topic: str, count: int, limit_s: float) -> None:
        """Have a topic have so many partitions; returns when all brokers that are asked show them.

        Raises:
            TopicError: the cluster refuses, or shows them too late.
        """
        try:
            await self._admin.create_partitions({topic: NewPartitions(count)})
        except BrokerResponseError as error:
            denied = isinstance(error, TopicAuthorizationFailedError | ClusterAuthorizationFailedError)
            do = "allow this user Alter on it" if denied else "look at the brokers and run this again"
            raise TopicError(
                f"{topic} was not given {count} partitions ({named(error)}): {do}, or have somebody do it: "
                f"kafka-topics.sh --alter --topic {topic} --partitions {count}"
            ) from error
        deadline = time.monotonic() + limit_s
        while (shown := (await self.partition_counts([topic])).get(topic, 0)) < count:
            if time.monotonic() > deadline:
                raise TopicError(
                    f"{topic} was given {count} partitions, and brokers show {shown} after {limit_s:g} s: see what keeps the cluster busy, "
                    "and run this again"
                )
            await asyncio.sleep(0.05)

    async def topic_ids(self, topics: list[str]) -> dict[str, str]:
        """Kafka's own IDs of topics, which must exist. Raises as :meth:`identity` does."""
        return {
            topic: item.topic_id
            for topic, item in zip(topics, await asyncio.gather(*map(self.identity, topics)), strict=True)
        }

    async def identity(self, topic: str) -> TopicIdentity:
        """Which topic of this name it is now. Asking never creates it, and costs one small request.

        Raises:
            UnknownTopicOrPartitionError: there is none.
            TopicAuthorizationFailedError: this user may not see it.
            KafkaConnectionError: no broker answers.
        """
        return await self._identities.ask(topic)
