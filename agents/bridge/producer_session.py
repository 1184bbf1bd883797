"""One life of a bridge's producer: hands batches over until something fails.

A partition's next batch waits for the acknowledgement of the last: where aiokafka gives a batch up, it continues with the next one.
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
    """The broker has looked into the record: it has no key and the topic is compacted, or it does not fit the topic's schema (KIP-467)."""

    errno = 87
    message = "INVALID_RECORD"
    description = "the broker's validation rejects it"


kafka_errors[InvalidRecordError.errno] = InvalidRecordError  # which aiokafka does not know

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
"""Errors that concern all messages at the target topic, but at the quarantine topic only those that go there."""


class SessionEndedError(Exception):
    """A batch was not acknowledged."""

    def __init__(
        self, reason: str, refused: Batch | None = None, *, of_time: bool = False, late: bool = False
    ) -> None:
        """``refused``: the batch that the target does not take, ``of_time`` for its timestamp; ``late``: the acknowledgement timed out."""
        super().__init__(reason)
        self.late = late
        self.refused = refused
        self.of_time = of_time


class ProducerSession:
    """From a producer's start to its first failure."""

    def __init__(self, name: str, producer: IdempotentProducer) -> None:
        """``name``: of the bridge, for fail points."""
        self.producer = producer
        self.moved = asyncio.Event()
        """Set when a batch was acknowledged, and when it ended."""
        self._name = name
        self._ended: SessionEndedError | None = None
        self._queues: dict[tuple[str, int], deque[Batch]] = {}
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    def check(self) -> None:
        """Raise what ended the session, if it has ended.

        Raises:
            LifeEndedError: it has.
        """
        if self._ended is not None:
            raise self._ended

    @property
    def ended(self) -> bool:
        """Whether nothing more is written."""
        return self._ended is not None

    def hand_over(self, batches: Iterable[Batch]) -> None:
        """Write these, those of one partition in order."""
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
        """Nothing more is handed over."""
        if self._ended is None:
            self._ended = reason
        self.moved.set()

    async def discard(self) -> None:
        """End it, whatever is under way. Never raises."""
        self.end(SessionEndedError("discarded"))
        tasks = [task for task in self._tasks.values() if not task.done()]
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks)
        finally:
            await self.producer.discard()
