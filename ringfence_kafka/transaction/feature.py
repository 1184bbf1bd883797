"""Whether a cluster adds partitions to a transaction by itself (KIP-890), and whether that is wanted."""

import os
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import IncompatibleBrokerVersion

from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.transaction import requests

VARIABLE: Final = "RINGFENCE_TRANSACTIONS_V2"
"""``off`` in it: as aiokafka does it, whatever brokers offer."""


def wanted() -> bool:
    """Whether it is to be used where it is offered.

    Raises:
        ConfigurationError: the variable is neither on nor off.
    """
    text = os.environ.get(VARIABLE, "") or "on"
    if text not in {"on", "off"}:
        raise ConfigurationError(
            f"environment: {VARIABLE} = {text!r} is neither on nor off: unset it, or set one of these"
        )
    return text == "on"


async def offered(producer: AIOKafkaProducer) -> bool:
    """Whether the cluster of this producer, which is initialised, has it. A feature that all brokers of a cluster have agreed on.

    Raises:
        KafkaError: the broker does not answer.
    """
    node = producer._sender._coordinators[CoordinationType.TRANSACTION]  # noqa: SLF001
    question = requests.api_versions("ringfence", "1")
    try:
        features = await producer.client.send(node, question, group=ConnectionGroup.COORDINATION)
    except IncompatibleBrokerVersion:
        return False
    return bool(features.get(requests.FEATURE, 0) >= requests.IMPLICIT)
