"""Questions of a consumer beside its work, for its metrics and its health: the ends of its partitions, and whether brokers answer."""

import asyncio
import contextlib
import logging
from typing import Final, Self

from aiokafka.errors import KafkaError

from ringfence_client.consumer.consumer import GroupConsumer
from ringfence_kafka.concurrency.broker_watch import BrokerWatch
from ringfence_kafka.concurrency.timeouts import cancelled
from ringfence_kafka.errors import RingfenceError

log: Final = logging.getLogger("ringfence.consumer")

LAG_EVERY_S: Final = 5.0
LIMIT_S: Final = 5.0
START_S: Final = 0.2
"""How often it is looked whether the consumer has begun."""


class LagMonitor:
    """Lag of one consumer, from its start to its end."""

    def __init__(self, consumer: GroupConsumer) -> None:
        self._consumer = consumer
        self.watch = BrokerWatch(
            consumer.cluster.connection.ping,
            log,
            "what handlers have goes on, progress waits to be written",
            consumer.cluster.connection.denied,
        )
        self.lags: dict[int, int | None] = {}
        """By partition that the group gave us, held or not; None = the cluster does not tell."""
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._measure())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            await cancelled(task)

    async def _begun(self) -> None:
        """Before the first assignment there is nobody to ask, and the consumer itself says why there is none."""
        while self._consumer.held_partitions.assigned is None:  # noqa: ASYNC110 - it is looked at beside the work
            await asyncio.sleep(START_S)

    async def _watch(self) -> None:
        await self._begun()
        await self.watch.run()

    async def _measure(self) -> None:
        await self._begun()
        while True:
            await self.measure()
            await asyncio.sleep(LAG_EVERY_S)

    async def measure(self) -> None:
        """Ask for the end of each partition that is ours."""
        consumer = self._consumer
        numbers = sorted({*(consumer.held_partitions.assigned or ()), *consumer.partitions})
        found = await asyncio.gather(*map(self._lag, numbers))
        self.lags = dict(zip(numbers, found, strict=True))

    async def _lag(self, number: int) -> int | None:
        """Return the messages from the first unfinished one to the end that committed readers see."""
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
