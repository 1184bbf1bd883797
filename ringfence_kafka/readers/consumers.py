"""aiokafka consumers that read partitions without a group."""

from typing import Any

from aiokafka import AIOKafkaConsumer

from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.auth.client_options import client_options
from ringfence_kafka.config.kafka import KafkaSettings

STOP_LIMIT_S = 5.0


async def connected(kafka: KafkaSettings, **options: Any) -> AIOKafkaConsumer:
    """Return a connected consumer without partitions. By default it reads committed records.

    Raises:
        KafkaError: no broker answers, or access is denied.
    """
    consumer = AIOKafkaConsumer(
        **{
            **client_options(kafka),
            "isolation_level": "read_committed",
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            **options,
        }
    )
    internals.never_create(consumer)
    try:
        await consumer.start()
    except BaseException:
        await internals.end(consumer, STOP_LIMIT_S)
        raise
    return consumer
