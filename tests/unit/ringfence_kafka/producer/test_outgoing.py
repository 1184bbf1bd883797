"""Which topics a refusal is about."""

import pytest
from aiokafka.errors import (
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TopicAuthorizationFailedError,
    UnknownError,
)

from ringfence_kafka.producer.outgoing import name_topics, refusing_topics


@pytest.mark.parametrize("error", [ProducerFenced(), InvalidTxnState()])
def test_refusals_of_a_producer(error: KafkaError) -> None:
    """A topic that refuses a fenced producer still takes records of others."""
    name_topics(error, ["billed"])

    assert refusing_topics(error) == frozenset()


def test_missing_right_of_one_topic() -> None:
    """Aiokafka fails all batches of a transaction if one topic may not be written; only that topic refuses."""
    error = TopicAuthorizationFailedError({"billed"})
    name_topics(error, ["billed", "progress"])

    assert refusing_topics(error) == {"billed"}


def test_named_topics() -> None:
    error = UnknownError()

    assert refusing_topics(error) == frozenset()
    name_topics(error, ["billed"])
    assert refusing_topics(error) == {"billed"}
