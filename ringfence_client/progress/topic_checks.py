"""Problems of the topics that consumers create, beside the table of :mod:`ringfence_kafka.admin.topic_rules`. Pure."""

from collections.abc import Sequence
from typing import Final

from ringfence_kafka.admin.topics import TopicDescription, alter
from ringfence_kafka.config.settings import AddressSettings

PROGRESS_BYTES_MAX: Final = 1_048_588
"""Kafka's default of ``max.message.bytes``. A progress record grows with the messages that finish out of order."""
PROGRESS: Final = ("progress", "consumer groups")
"""Role and owner of the progress topic, which all consumers of an app share."""
LETTERS: Final = "dead letters"


def progress_deleted(name: str, letters: Sequence[str]) -> list[str]:
    """Return the problem of a missing progress topic if dead-letter topics (``letters``) exist. The first consumer creates both."""
    if not letters:
        return []
    text = (
        f"{name} (progress of consumer groups) does not exist, and {letters[0]} does: somebody deleted it. Consumers wait until it is "
        "there again, and then continue where they were: run 'ringfence topics create'"
    )
    return [text]


def small(topic: TopicDescription) -> str:
    """Return the problem of a progress topic with too small a message limit."""
    return (
        f"{topic.name} has max.message.bytes={topic.message_bytes_max}, too little for a record of progress: "
        f"{alter(topic.name, 'max.message.bytes', PROGRESS_BYTES_MAX)}"
    )


def no_letters(address: AddressSettings, name: str) -> str:
    """Return the note about a missing dead-letter topic of an address with consumers."""
    return f"{name} (dead letters of {address.name}) does not exist: a consumer makes it when it starts, or when it has its next one"


def state_fault(topic: TopicDescription) -> str:
    """Return the problem of a state topic from which Kafka would delete states; empty = it is compacted, or unknown."""
    if topic.config is None or topic.cleanup_policy == {"compact"}:
        return ""
    return (
        f"the state topic {topic.name} has cleanup.policy={topic.policy_words}, so Kafka would delete states, and consumers do not use it: "
        "set it to compact alone"
    )
