"""The worker's consumer group: its metadata, its name as a static member, and requests of its lanes."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from agents.lane.errors import QUESTION_LIMIT_S
from agents.rules.member_statements import UNUSABLE, encode, own_statement
from app.worker.fetch.transport import BatchConsumerThread, Place
from app.worker.membership.lane_assignment import LaneTopics
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.concurrency.coalesce import RequestCoalescer
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import BrokerUnavailableError
from ringfence_kafka.groups import static_members
from ringfence_kafka.protocol import wire_names

log: Final = logging.getLogger("ringfence.worker")


class GroupMembership:
    """This worker as a member of its group."""

    def __init__(self, settings: Settings) -> None:
        self.lane_topics: Final[Sequence[LaneTopics]] = lane_topics(settings)
        """Topics of each address, whose partitions make up its lanes."""
        self._rules = encode(own_statement(settings))
        self._unusable = False
        self._thread: BatchConsumerThread | None = None

    @property
    def statement(self) -> Mapping[str, Any]:
        """Metadata that this worker announces when it joins: see :mod:`agents.rules.member_statements`."""
        return self._rules | ({UNUSABLE: True} if self._unusable else {})

    @property
    def member_id(self) -> str:
        """ID that the group gave this worker; empty = not a member now. Thread-safe."""
        return "" if self._thread is None else self._thread.member_id

    def connect(self, thread: BatchConsumerThread) -> None:
        """Use the thread that owns the consumer."""
        self._thread = thread

    def state_unusable(self, unusable: bool) -> None:
        """Announce whether this worker is unable to hold lanes, and request a new assignment."""
        self._unusable = unusable
        self.join_again()

    def join_again(self) -> None:
        """Request a new assignment, if this worker leads the group."""
        if self._thread is not None:
            self._thread.join_again()

    def ownership(self, generation: int) -> "GroupOwnership":
        """Return the lanes' view of the group for the assignment of a generation."""
        assert self._thread is not None  # noqa: S101 - it was given an assignment
        return GroupOwnership(self._thread, generation)


class GroupOwnership:
    """A lane's view of the consumer group, for one assignment (see :class:`agents.lane.open.Ownership`)."""

    def __init__(self, thread: BatchConsumerThread, generation: int) -> None:
        self._thread = thread
        self._generation = generation
        # All lanes ask at once after an assignment. Coalescing wakes the consumer's thread once for many
        # lanes.
        self._confirmations: RequestCoalescer[int, bool] = RequestCoalescer(self._confirm)
        self._rewinds: RequestCoalescer[Place, int] = RequestCoalescer(self._rewind)

    async def confirm(self) -> bool:
        """Return whether the broker confirms this worker's membership in the generation of the assignment."""
        return await self._confirmations.answer(self._generation)

    async def rewind(self, topic: str, partition: int, offset: int) -> int:
        """Fetch from ``offset`` again."""
        return await self._rewinds.answer((TopicPartition(topic, partition), offset))

    async def _confirm(self, generations: Collection[int]) -> dict[int, bool | Exception]:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            return {
                generation: bool(await self._thread.call_thread(self._thread.is_member, generation))
                for generation in generations
            }

    async def _rewind(self, places: Collection[Place]) -> dict[Place, int | Exception]:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            rewinds: dict[Place, int | Exception] = await self._thread.call_thread(
                self._thread.rewind_all, list(places)
            )
            return rewinds


def group_instance(settings: Settings) -> str | None:
    """Return the worker's name in its consumer group; None = not a static member."""
    return settings.app.instance if settings.app.static_membership else None


def subscribed(settings: Settings) -> set[str]:
    """Return all topics that a worker reads as a member of its group."""
    return {topic for address in lane_topics(settings) for topic in address.names}


def lane_topics(settings: Settings) -> list[LaneTopics]:
    """Return the topics of each address that a worker reads."""
    return [
        LaneTopics(
            address.input_topic,
            wire_names.forward_topic(settings.app.id, address.name) if address.forwards else "",
            address.lanes,
        )
        for address in settings.addresses
    ]


def replaced(settings: Settings) -> str:
    """Return the error of a worker that another worker with the same name replaced."""
    return (
        f"another worker has joined the group {settings.app.id} as app.instance = {settings.app.instance}, and has its lanes: if it "
        "is this one's replacement, leave this one ended; else give each its own app.instance (RINGFENCE_APP__INSTANCE), then start "
        "this one again"
    )


async def renew(settings: Settings) -> None:
    """Request a new assignment before joining, if the predecessor read other topics, or unknown ones.

    Raises:
        BrokerUnavailableError: The group does not answer.
    """
    instance = settings.app.instance
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        try:
            await cluster.groups.await_coordinator()
            outdated = await static_members.forget_outdated(
                cluster.connection.admin, cluster.group_id, instance, subscribed(settings)
            )
        except KafkaError as error:
            raise BrokerUnavailableError(
                f"the consumer group {settings.app.id} does not report what {instance} read in its last run "
                f"({error!r}): start this worker again; if that does not help, set app.static_membership = "
                "false"
            ) from error
    if outdated:
        log.info(
            "%s had other addresses in its last run, or the group does not report them: asking for a new "
            "assignment",
            instance,
        )
