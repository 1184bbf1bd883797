"""Questions that a lane asks the cluster: watermarks, log starts, committed offsets, partition counts."""

from types import TracebackType
from typing import Any, Final, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from conf.errors import BrokerUnavailableError
from conf.settings import KafkaSettings

REQUEST_TIMEOUT_MS: Final = 10_000
RETRY_BACKOFF_MS: Final = 40
DELETE_RETENTION_DEFAULT_S: Final = 86_400.0


def client_options(kafka: KafkaSettings) -> dict[str, Any]:
    """Options that every aiokafka client takes: where the cluster is and how to get in."""
    return {
        "bootstrap_servers": [server.strip() for server in kafka.bootstrap_servers.split(",")],
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        "retry_backoff_ms": RETRY_BACKOFF_MS,
    }


class Cluster:
    """One connection for all lanes of a worker.

    It reads *uncommitted*: under read_committed ``end_offsets`` is the last stable offset, which any open
    transaction holds back, and a restore up to there would miss committed records behind it.
    """

    def __init__(self, kafka: KafkaSettings, group_id: str) -> None:
        self.kafka = kafka
        self.group_id = group_id

    async def start(self) -> None:
        """Connect.

        Raises:
            BrokerUnavailableError: nobody answers.
        """
        options = client_options(self.kafka)
        self._consumer = AIOKafkaConsumer(isolation_level="read_uncommitted", **options)
        self._admin = AIOKafkaAdminClient(**options)
        try:
            await self._consumer.start()
            await self._admin.start()
        except (KafkaError, OSError) as error:
            await self.stop()
            raise BrokerUnavailableError(
                f"no broker answers at kafka.bootstrap_servers = {self.kafka.bootstrap_servers!r}: "
                "start it, or mend the address"
            ) from error

    async def stop(self) -> None:
        """Disconnect."""
        await self._consumer.stop()
        await self._admin.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def ping(self) -> None:
        """Returns when a broker answers."""
        await self._admin._send_request(MetadataRequest([], allow_auto_topic_creation=False))  # noqa: SLF001

    async def high_watermark(self, topic: str, partition: int) -> int:
        """Offset that the next record gets, committed or not."""
        tp = TopicPartition(topic, partition)
        return int((await self._consumer.end_offsets([tp]))[tp])

    async def log_start(self, topic: str, partition: int) -> int:
        """Offset of the oldest record that retention left."""
        tp = TopicPartition(topic, partition)
        return int((await self._consumer.beginning_offsets([tp]))[tp])

    async def committed(self, topic: str, partition: int) -> int | None:
        """The group's committed offset, asked for now; None = none."""
        tp = TopicPartition(topic, partition)
        offsets = await self._admin.list_consumer_group_offsets(self.group_id, partitions=[tp])
        found = offsets.get(tp)
        return None if found is None or found.offset < 0 else int(found.offset)

    async def partition_counts(self, topics: list[str]) -> dict[str, int]:
        """Partition counts asked for now; a topic that does not exist is absent."""
        # Not admin.describe_topics(): on a cluster that creates topics by itself, its question would be an order.
        request = MetadataRequest(topics, allow_auto_topic_creation=False)
        response = await self._admin._send_request(request)  # noqa: SLF001 - aiokafka has no public way to ask so
        return {
            each["topic"]: len(each["partitions"])
            for each in response.to_object()["topics"]
            if each["error_code"] == 0 and each["partitions"]
        }

    async def delete_retention_s(self, topic: str) -> float:
        """``delete.retention.ms`` of a topic, in seconds: how long compaction keeps tombstones."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"delete.retention.ms": None})
        for response in await self._admin.describe_configs([resource]):
            for _, _, _, _, entries in response.resources:
                for name, value, *_ in entries:
                    if name == "delete.retention.ms":
                        return int(value) / 1000
        return DELETE_RETENTION_DEFAULT_S
