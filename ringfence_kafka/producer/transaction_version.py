"""Transaction version of a cluster (KIP-890): whether it is offered, wanted, or lost.

A broker persists the state of a transactional ID at each change. With ``transaction.version`` 0 it cannot persist the state of an ID that
was used with version 2, and fails after it has marked the change as started. It then refuses all requests for this ID until it restarts.
After the restart it reads the old state and fails in the same way, unless the version is at least 1 again. Seen on Kafka 4.1.0 and 4.4.0.
"""

import asyncio
import os
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaError

from ringfence_kafka.aiokafka_patches import producer_internals
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.producer import transaction_v2_requests

VARIABLE: Final = "RINGFENCE_TRANSACTIONS_V2"
"""Environment variable. ``off`` = use aiokafka's protocol, even if brokers offer version 2."""

QUESTION_LIMIT_S: Final = 5.0
LOWERED: Final = (
    f"the cluster's {transaction_v2_requests.FEATURE} is 0 though its brokers support {transaction_v2_requests.SELF_ADDING}, and a transactional ID is refused or gets no answer. "
    "If the version was lowered while it was in use, this is why. Nothing of the ID is processed, and nothing is lost"
)
"""Text of a problem that a lowered version causes. A cluster that never raised the version may have another problem."""
RAISE: Final = f"upgrade --feature {transaction_v2_requests.FEATURE}={transaction_v2_requests.SELF_ADDING}"
"""Arguments of Kafka's tool ``kafka-features.sh``."""
WAY_OUT: Final = f"then raise it again ('kafka-features.sh {RAISE}'), and then restart all brokers, one after the other; neither is enough alone"
"""Remedy after ``transaction.version`` was lowered to 0."""


class TransactionVersionError(KafkaError):  # type: ignore[misc]
    """Brokers refuse transactional IDs because ``transaction.version`` was lowered to 0 while it was in use."""

    def __init__(self, transactional_id: str) -> None:
        """Create the error of a refused ``transactional_id``."""
        super().__init__(f"{LOWERED}: {WAY_OUT} (transactional ID {transactional_id})")


def wanted() -> bool:
    """Return whether version 2 should be used if it is offered.

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
    """Return whether the cluster of this initialised producer offers version 2, which all its brokers must have agreed on.

    Raises:
        KafkaError: the broker does not answer.
    """
    node = producer_internals.known_coordinator(producer, CoordinationType.TRANSACTION)
    features = await _ask(producer, node)
    return features.agreed.get(transaction_v2_requests.FEATURE, 0) >= transaction_v2_requests.SELF_ADDING


async def lowered(producer: AIOKafkaProducer) -> bool:
    """Return whether the cluster supports the feature and its level is 0; False if no broker answers.

    Call it after brokers refused a producer: a lowered version is then the cause.
    """
    node = producer_internals.known_coordinator(producer, CoordinationType.TRANSACTION)
    if node is None:
        return False
    try:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            features = await _ask(producer, node)
    except (KafkaError, OSError, TimeoutError):
        return False
    level, supported = (feature.get(transaction_v2_requests.FEATURE, 0) for feature in features)
    return level == 0 and supported >= transaction_v2_requests.SELF_ADDING


async def _ask(producer: AIOKafkaProducer, node: int | None) -> transaction_v2_requests.Features:
    question = transaction_v2_requests.api_versions("ringfence", "1")
    features: transaction_v2_requests.Features
    features = await producer.client.send(node, question, group=ConnectionGroup.COORDINATION)
    return features
