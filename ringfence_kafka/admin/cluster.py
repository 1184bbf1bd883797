"""Queries to one cluster, by subject: topics, offsets of partitions, one consumer group."""

from typing import Self

from ringfence_kafka.admin.connection import Connection
from ringfence_kafka.admin.group_admin import GroupAdmin
from ringfence_kafka.admin.offsets import OffsetReader
from ringfence_kafka.admin.topic_admin import TopicAdmin
from ringfence_kafka.config.settings import KafkaSettings


class Cluster:
    """One connection for all lanes of a worker. Simultaneous equal queries share one request."""

    def __init__(self, kafka: KafkaSettings, group_id: str) -> None:
        self.kafka = kafka
        self.group_id = group_id
        self.connection = Connection(kafka)
        self.topics = TopicAdmin(self.connection)
        self.offsets = OffsetReader(self.connection)
        self.groups = GroupAdmin(self.connection, group_id)

    async def start(self) -> None:
        """Connect. Raises as :meth:`ringfence_kafka.admin.connection.Connection.start`."""
        await self.connection.start()

    async def stop(self) -> None:
        """Disconnect. Waiting queries raise StoppedError."""
        await self.groups.stop()
        await self.topics.stop()
        await self.offsets.stop()
        await self.connection.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
