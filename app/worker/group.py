"""What a lane asks of the worker's consumer group, and who answers: the consumer, in its own thread."""

from typing import cast

import faust
from aiokafka import TopicPartition

from app.worker.transport import BatchConsumer, BatchConsumerThread


class GroupOwnership:
    """A lane's view of the consumer group, for one assignment (see :class:`agents.opening.Ownership`)."""

    def __init__(self, app: faust.App) -> None:
        self._app = app
        self._generation = app.consumer_generation_id

    async def confirm(self) -> bool:
        """Whether the broker confirms our membership in the generation of the assignment."""
        return bool(await self._thread.call_thread(self._thread.is_member, self._generation))

    async def rewind(self, topic: str, partition: int, offset: int) -> int:
        """Fetch from ``offset`` again."""
        tp = TopicPartition(topic, partition)
        return int(await self._thread.call_thread(self._thread.rewind, tp, offset))

    @property
    def _thread(self) -> BatchConsumerThread:
        return cast("BatchConsumer", self._app.consumer).thread
