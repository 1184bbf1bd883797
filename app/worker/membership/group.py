"""What a lane asks of the worker's consumer group, and who answers: the consumer, in its own thread."""

import asyncio
from collections.abc import Collection
from typing import cast

import faust
from aiokafka import TopicPartition

from agents.lane.open import QUESTION_LIMIT_S
from app.worker.fetch.transport import BatchConsumer, BatchConsumerThread
from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.concurrency.coalesce import RequestCoalescer


class GroupOwnership:
    """A lane's view of the consumer group, for one assignment (see :class:`agents.lane.open.Ownership`)."""

    def __init__(self, app: faust.App) -> None:
        self._app = app
        self._generation = app.consumer_generation_id
        self._asked: RequestCoalescer[int, bool] = RequestCoalescer(self._ask)
        """All lanes ask at one moment, when the group has given them out."""
        self._rewinds: RequestCoalescer[tuple[TopicPartition, int], int] = RequestCoalescer(self._rewind)
        """Each is a wait for the consumer's thread, which so wakes up once for many."""

    async def confirm(self) -> bool:
        """Whether the broker confirms our membership in the generation of the assignment."""
        return await self._asked.ask(self._generation)

    async def _ask(self, generations: Collection[int]) -> dict[int, bool | Exception]:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            return {
                generation: bool(await self._thread.call_thread(self._thread.is_member, generation))
                for generation in generations
            }

    async def rewind(self, topic: str, partition: int, offset: int) -> int:
        """Fetch from ``offset`` again."""
        return await self._rewinds.ask((TopicPartition(topic, partition), offset))

    async def _rewind(
        self, places: Collection[tuple[TopicPartition, int]]
    ) -> dict[tuple[TopicPartition, int], int | Exception]:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            found: dict[tuple[TopicPartition, int], int | Exception] = await self._thread.call_thread(
                self._thread.rewind_all, list(places)
            )
            return found

    @property
    def _thread(self) -> BatchConsumerThread:
        return _thread(self._app)


def member_id(app: faust.App) -> str:
    """Return the ID that the group gave this worker; empty = it is not a member now. In any thread."""
    thread = getattr(app.consumer, "thread", None)
    consumer = getattr(thread, "_consumer", None)
    return "" if consumer is None else internals.member_id(consumer)


def join_again(app: faust.App) -> None:
    """Have the group share out anew, if this worker leads it."""
    _thread(app).join_again()


def _thread(app: faust.App) -> BatchConsumerThread:
    return cast("BatchConsumer", app.consumer).thread
