"""The two aiokafka clients that query one cluster."""

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.auth.access_errors import nobody
from ringfence_kafka.auth.client_options import client_options, refusal
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import BrokerUnavailableError


class Connection:
    """A consumer for offsets, and an admin client for everything else."""

    consumer: AIOKafkaConsumer
    admin: AIOKafkaAdminClient

    def __init__(self, kafka: KafkaSettings) -> None:
        self.kafka = kafka

    async def start(self) -> None:
        """Connect. May be called again after a failure.

        Raises:
            BrokerUnavailableError: no broker answers, or all deny access.
        """
        options = client_options(self.kafka)
        self.consumer = AIOKafkaConsumer(**options)
        self.admin = AIOKafkaAdminClient(**options)
        for client in (self.consumer, self.admin):
            internals.never_create(client)
        try:
            await self.consumer.start()
            await self.admin.start()
        except (KafkaError, OSError) as error:
            await self.stop()
            raise await refusal(self.kafka) or nobody(self.kafka) from error

    async def stop(self) -> None:
        """Disconnect."""
        await self.consumer.stop()
        await self.admin.close()

    async def ping(self) -> None:
        """Return after a broker answers."""
        await internals.send_request(self.admin, MetadataRequest([], allow_auto_topic_creation=False))

    async def denied(self) -> BrokerUnavailableError | None:
        """Return the error of a broker that denies access now; None if no broker answers."""
        return await refusal(self.kafka, was_in=True)
