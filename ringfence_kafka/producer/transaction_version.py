"""Transaction version of a cluster (KIP-890): whether it is offered, wanted, or lost.

A broker writes down the state of a transactional ID when it changes. With ``transaction.version`` 0 it cannot write the state of one that was
used with version 2. It fails after it has noted the change as begun. Until it restarts it refuses all requests for that ID. Then it reads the
old state and fails in the same way, unless the version is at least 1 again. Seen on Kafka 4.1.0 and 4.4.0.
"""

import asyncio
import os
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

from ringfence_kafka.aiokafka_patches import producer_internals
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.producer import transaction_v2_requests

VARIABLE: Final = "RINGFENCE_TRANSACTIONS_V2"
"""``off`` in it: as aiokafka does it, whatever brokers offer."""

QUESTION_LIMIT_S: Final = 5.0
LOWERED: Final = (
    f"the cluster's {transaction_v2_requests.FEATURE} is 0 though its brokers support {transaction_v2_requests.SELF_ADDING}, and a transactional ID is refused or gets no answer. "
    "If the version was lowered while it was in use, this is why. Nothing of the ID is processed, and nothing is lost"
)
"""Text of a problem that a lowered version causes. A cluster that never raised it may have another one, so the text does not say more."""
RAISE: Final = f"upgrade --feature {transaction_v2_requests.FEATURE}={transaction_v2_requests.SELF_ADDING}"
"""Arguments of Kafka's tool ``kafka-features.sh``."""
WAY_OUT: Final = f"then raise it again ('kafka-features.sh {RAISE}'), and then restart all brokers, one after the other; neither is enough alone"
"""The remedy after ``transaction.version`` was lowered to 0."""


class TransactionVersionError(KafkaError):  # type: ignore[misc]
    """Brokers refuse transactional IDs because ``transaction.version`` was lowered to 0 while it was in use."""

    def __init__(self, transactional_id: str) -> None:
        """``transactional_id``: what is refused."""
        super().__init__(f"{LOWERED}: {WAY_OUT} (transactional ID {transactional_id})")


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
    node = producer_internals.known_coordinator(producer, CoordinationType.TRANSACTION)
    features = await _ask(producer, node)
    return features.agreed.get(transaction_v2_requests.FEATURE, 0) >= transaction_v2_requests.SELF_ADDING


async def lowered(producer: AIOKafkaProducer) -> bool:
    """Whether the cluster could have the feature and its level is 0. False where no broker answers.

    To be asked when brokers refuse a producer: then this is the reason.
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
    try:
        features: transaction_v2_requests.Features = await producer.client.send(
            node, question, group=ConnectionGroup.COORDINATION
        )
    except IncompatibleBrokerVersion:
        return transaction_v2_requests.Features({}, {})
    return features
