"""Background checks of a consumer for metrics and health: partition ends, open dead letters, reachable brokers."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Self

from aiokafka.errors import KafkaError

from ringfence_client.consumer.consumer import GroupConsumer
from ringfence_client.progress.open_records import OpenRecords, OpenRecordWatch
from ringfence_kafka.concurrency.broker_watch import BrokerWatch
from ringfence_kafka.concurrency.timeouts import cancelled
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.protocol import wire_names

log: Final = logging.getLogger("ringfence.consumer")

LAG_EVERY_S: Final = 5.0
LIMIT_S: Final = 5.0
START_S: Final = 0.2
"""Interval of checks whether the consumer has started, in seconds."""


class LagMonitor:
    """Lag and open dead letters of one consumer, from its start to its end."""

    def __init__(self, consumer: GroupConsumer) -> None:
        self._consumer = consumer
        self.watch = BrokerWatch(
            consumer.cluster.connection.ping,
            log,
            "running handlers continue, progress waits to be written",
            consumer.cluster.connection.denied,
        )
        self.lags: dict[int, int | None] = {}
        """Lag by assigned partition, held or not; None = the cluster does not answer."""
        self._letters = OpenRecordWatch(consumer.app_id, consumer.cluster)
        """Open dead letters, while this consumer holds partition 0. Exactly one consumer of each group does."""
        self._letter_topic = wire_names.dead_letter_topic(consumer.address.name)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        work = (self.watch.run, partial(_repeat, self.measure), partial(_repeat, self.count_letters))
        self._tasks = [asyncio.create_task(self._after_the_start(item)) for item in work]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            await cancelled(task)

    async def _after_the_start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Work from the first assignment on. Before it, the consumer itself reports why it is missing."""
        while self._consumer.held_partitions.assigned is None:  # noqa: ASYNC110 - it is looked at beside the work
            await asyncio.sleep(START_S)
        await work()

    @property
    def counts_letters(self) -> bool:
        """Whether this consumer reports the open dead letters of its group."""
        return 0 in self._consumer.partitions

    @property
    def open_letters(self) -> OpenRecords | None:
        """Open dead letters of the last look; None = none, or unknown."""
        return self._letters.open_records(self._letter_topic, self._consumer.group)

    @property
    def knows_letters(self) -> bool:
        """Whether the last look was able to read the dead-letter topic."""
        return self._letters.knows(self._letter_topic)

    async def count_letters(self) -> None:
        """Read new records of the dead-letter topic."""
        await self._letters.refresh([self._letter_topic] if self.counts_letters else [])

    async def measure(self) -> None:
        """Read the end of each assigned or held partition."""
        consumer = self._consumer
        numbers = sorted({*(consumer.held_partitions.assigned or ()), *consumer.partitions})
        found = await asyncio.gather(*map(self._lag, numbers))
        self.lags = dict(zip(numbers, found, strict=True))

    async def _lag(self, number: int) -> int | None:
        """Return the number of messages from the first unfinished one to the end for committed readers; None = unknown."""
        topic, cluster = self._consumer.address.accepted_topic, self._consumer.cluster
        with contextlib.suppress(KafkaError, OSError, TimeoutError, RingfenceError):
            async with asyncio.timeout(LIMIT_S):
                end = await cluster.offsets.stable_end(topic, number)
                held = self._consumer.partitions.get(number)
                if held is not None:
                    return max(0, end - held.window.next)
                committed = await cluster.groups.committed_offset(topic, number)
                return max(0, end - max(committed or 0, await cluster.offsets.log_start(topic, number)))
        return None


async def _repeat(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await work()
        await asyncio.sleep(LAG_EVERY_S)
