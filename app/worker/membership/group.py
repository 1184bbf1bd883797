"""The worker's consumer group: metadata of the worker, and requests of its lanes to the consumer's thread."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from aiokafka import TopicPartition

from agents.lane.errors import QUESTION_LIMIT_S
from agents.rules.member_statements import UNUSABLE, encode, own_statement
from app.worker.fetch.transport import BatchConsumerThread, Place
from app.worker.membership import static_membership
from app.worker.membership.lane_assignment import LaneTopics
from ringfence_kafka.concurrency.coalesce import RequestCoalescer
from ringfence_kafka.config.settings import Settings


class GroupMembership:
    """This worker as a member of its group."""

    def __init__(self, settings: Settings) -> None:
        self.lane_topics: Final[Sequence[LaneTopics]] = static_membership.lane_topics(settings)
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
