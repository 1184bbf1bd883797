"""Double of :class:`ringfence_kafka.admin.cluster.Cluster` in a consumer, and of the client that its producers share."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Self, TypeVar

from ringfence_kafka.admin.topic_ids import TopicIdentity
from ringfence_kafka.admin.topics import TopicDescription
from ringfence_kafka.config.settings import KafkaSettings
from tests.simulator.doubles.admin import SimulatedQuestions
from tests.simulator.doubles.transaction_client import Metadata, send

T = TypeVar("T")


class SimulatedClient(SimulatedQuestions):
    """Queries that a consumer sends."""

    def __init__(self, kafka: KafkaSettings, group_id: str) -> None:
        loop: Any = asyncio.get_running_loop()
        super().__init__(kafka, group_id, loop.process.cluster, loop.process.network)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def identity(self, topic: str) -> TopicIdentity:
        return await self._network.call(self._identity, topic)

    def _identity(self, topic: str) -> TopicIdentity:
        found = self._cluster.topic(topic)
        return TopicIdentity(found.topic_id, len(found.logs))

    async def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        found = await self._network.call(self._cluster.describe, sorted(topics))
        return {name: topic_description.partitions for name, topic_description in found.items()}

    async def static_members(self) -> list[Any]:
        """Return no members: brokers before 2.4 do not report them."""
        return []

    async def foreign_members(self, _is_ours: Any) -> list[Any]:
        return []

    async def await_created(self, topics: Collection[str], _limit_s: float) -> dict[str, TopicDescription]:
        return (await self.describe(topics)).topics

    async def create(
        self, topic: str, partitions: int, _replication_factor: int, config: Mapping[str, str]
    ) -> None:
        def create() -> None:
            if topic not in self._cluster.topics:
                self._cluster.create(topic, partitions, **config)

        await self._network.call(create)


class SharedClient:
    """The client below :class:`ringfence_kafka.producer.shared_clients.ClientShare`."""

    def __init__(self, **_: Any) -> None:
        self.shares = 0
        loop: Any = asyncio.get_running_loop()
        self.cluster = Metadata(loop.process.cluster.brokers)

    send = staticmethod(send)

    @staticmethod
    def force_metadata_update() -> "asyncio.Future[bool]":
        return _done(True)

    @staticmethod
    async def _wait_on_metadata(_topic: str) -> None:
        """Return at once: all metadata is known."""

    def end(self) -> "asyncio.Future[None]":
        return _done(None)


def _done(answer: T) -> "asyncio.Future[T]":
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future
