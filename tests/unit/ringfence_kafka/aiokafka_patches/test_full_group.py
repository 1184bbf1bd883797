"""A group that has as many members as the brokers allow."""

from aiokafka.errors import KafkaError, for_code

from ringfence_kafka import aiokafka_patches
from ringfence_kafka.aiokafka_patches import membership
from ringfence_kafka.errors import named


def test_the_refusal_names_the_setting() -> None:
    """The client logs the class of an error that it does not handle, and raises its representation."""
    aiokafka_patches.install()
    refusal = for_code(81)()

    assert isinstance(refusal, membership.GroupMaxSizeReachedError)
    assert "group.max.size" in named(KafkaError(repr(refusal)))
