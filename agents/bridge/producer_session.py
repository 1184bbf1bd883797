"""One producer of a bridge, from its start to its first failure.

The next batch of a partition waits for the acknowledgement of the last one: if aiokafka gives up a batch, it continues with the next.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

from aiokafka.errors import (
    BrokerResponseError,
    InvalidTimestampError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    kafka_errors,
)

from agents.bridge.batch_builder import Batch
from ringfence_kafka.errors import said
from ringfence_kafka.process.failpoints import reach
from ringfence_kafka.producer.idempotent import IdempotentProducer


class InvalidRecordError(BrokerResponseError):  # type: ignore[misc]
    """The broker refuses the record's content: no key in a compacted topic, or a mismatch with the topic's schema (KIP-467)."""

    errno = 87
    message = "INVALID_RECORD"
    description = "the broker's validation rejects it"


kafka_errors[InvalidRecordError.errno] = InvalidRecordError  # aiokafka does not know this error

FOR_GOOD: Final = (
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    UnsupportedForMessageFormatError,
)
"""Errors of a topic that refuses a record at every attempt."""

DENIED: Final = (TopicAuthorizationFailedError, UnknownTopicOrPartitionError)
"""Errors that affect all messages to the target topic. At the quarantine topic they affect only quarantined messages."""


class SessionEndedError(Exception):
    """A batch was not acknowledged, or the session was ended."""

    def __init__(
        self, reason: str, refused: Batch | None = None, *, of_time: bool = False, late: bool = False
    ) -> None:
        """Create the error. ``refused``: batch that the target refuses, ``of_time``: for its timestamp; ``late``: after a time-out."""
        super().__init__(reason)
        self.late = late
        self.refused = refused
        self.of_time = of_time


class ProducerSession:
    """Session of one producer, from its start to its first failure."""

    def __init__(self, name: str, producer: IdempotentProducer) -> None:
        """Create a session. ``name``: name of the bridge, for fail points."""
        self.producer = producer
        self.moved = asyncio.Event()
        """Set when a batch was acknowledged, and when the session ended."""
        self._name = name
        self._ended: SessionEndedError | None = None
        self._queues: dict[tuple[str, int], deque[Batch]] = {}
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    def check(self) -> None:
        """Raise SessionEndedError if the session has ended."""
        if self._ended is not None:
            raise self._ended

    @property
    def ended(self) -> bool:
        """Whether the session has ended."""
        return self._ended is not None

    def hand_over(self, batches: Iterable[Batch]) -> None:
        """Send batches, in order for each partition."""
        for batch in batches:
            place = (batch.topic, batch.partition)
            self._queues.setdefault(place, deque()).append(batch)
            task = self._tasks.get(place)
            if task is None or task.done():
                self._tasks[place] = asyncio.create_task(self._drain(place), name=f"to {place[0]}/{place[1]}")

    async def _drain(self, place: tuple[str, int]) -> None:
        queue = self._queues[place]
        while queue and self._ended is None:
            batch = queue[0]
            try:
                await self.producer.send(batch.topic, batch.partition, batch.builder)
                await reach("mid-send", self._name)
            except Exception as error:
                kinds = (*FOR_GOOD, *DENIED) if batch.quarantine else FOR_GOOD
                refused = batch if isinstance(error, kinds) else None
                of_time = isinstance(error, InvalidTimestampError)
                reason = f"{batch.topic}/{batch.partition}: {said(error)}"
                late = isinstance(error, (KafkaTimeoutError, RequestTimedOutError))
                self.end(SessionEndedError(reason, refused, of_time=of_time, late=late))
                return
            queue.popleft()
            batch.cycle.pending -= 1
            self.moved.set()

    def end(self, reason: SessionEndedError) -> None:
        """End the session. It sends no more batches."""
        if self._ended is None:
            self._ended = reason
        self.moved.set()

    async def discard(self) -> None:
        """End the session and cancel unacknowledged batches. Never raises."""
        self.end(SessionEndedError("discarded"))
        tasks = [task for task in self._tasks.values() if not task.done()]
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks)
        finally:
            await self.producer.discard()
