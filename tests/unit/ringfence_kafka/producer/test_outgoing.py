import pytest
from aiokafka.errors import (
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TopicAuthorizationFailedError,
    UnknownError,
)

from ringfence_kafka.producer.outgoing import name_topics, refusing_topics


@pytest.mark.parametrize(
    ("error", "refusing"),
    [
        (ProducerFenced(), set()),
        (InvalidTxnState(), set()),
        (TopicAuthorizationFailedError({"billed"}), {"billed"}),
        (UnknownError(), {"billed", "progress"}),
    ],
)
def test_refusing_topics(error: KafkaError, refusing: set[str]) -> None:
    """A topic that refuses a fenced producer still takes records of others; a missing right is one topic's."""
    name_topics(error, ["billed", "progress"])

    assert refusing_topics(error) == refusing
