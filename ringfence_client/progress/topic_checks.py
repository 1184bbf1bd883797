"""Faults of the topics that consumers make for themselves, each with its fix. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from ringfence_client.progress.progress_topic import TOPIC_CONFIG
from ringfence_kafka.admin.topics import TopicDescription, alter, untold
from ringfence_kafka.config.settings import AddressSettings

PROGRESS_BYTES_MAX: Final = 1_048_588
"""Kafka's own default of ``max.message.bytes``: a record of progress grows with what is finished out of order."""
CLEANING: Final = ("segment.bytes", "delete.retention.ms")
"""Settings that limit what compaction leaves of the progress topic."""


def progress_faults(topic: TopicDescription) -> Iterable[str]:
    """Yield the faults of the progress topic, which all consumers of an app share."""
    if topic.config is None:
        yield untold(topic.name)
    elif topic.cleanup_policy != {"compact"}:
        yield (
            f"{topic.name} (progress of consumer groups) has cleanup.policy={topic.policy_words}, and "
            f"retention would delete what consumers have finished: {alter(topic.name, 'cleanup.policy', 'compact')}"
        )


def progress_notes(topic: TopicDescription) -> Iterable[str]:
    """Settings of the progress topic with which an opening of a partition reads much."""
    for setting in CLEANING:
        wanted = int(TOPIC_CONFIG[setting])
        if (found := topic.number(setting, wanted)) > wanted:
            yield (
                f"{topic.name} has {setting}={found}, {wanted} is enough, and whoever opens a partition reads what "
                f"compaction leaves: {alter(topic.name, setting, wanted)}"
            )


def progress_deleted(name: str, letters: Sequence[str]) -> list[str]:
    """Return the fault of a progress topic that does not exist, if dead-letter topics (``letters``) do: the first consumer makes both."""
    if not letters:
        return []
    text = (
        f"{name} (progress of consumer groups) does not exist, and {letters[0]} does: somebody deleted it. Consumers wait until it is "
        "there again, and then continue where they were: run 'ringfence topics create'"
    )
    return [text]


def small(topic: TopicDescription) -> str:
    """Return the fault of a progress topic whose largest message is too small."""
    return (
        f"{topic.name} has max.message.bytes={topic.message_bytes_max}, too little for a record of progress: "
        f"{alter(topic.name, 'max.message.bytes', PROGRESS_BYTES_MAX)}"
    )


def letter_faults(address: AddressSettings, topic: TopicDescription) -> Iterable[str]:
    """Yield the faults of the dead-letter topic of an address."""
    if topic.config is None:
        yield untold(topic.name)
    elif "compact" in topic.cleanup_policy:
        yield (
            f"{topic.name} (dead letters of {address.name}) has cleanup.policy={topic.policy_words}, and compaction would delete all "
            f"dead letters of a group but the last: {alter(topic.name, 'cleanup.policy', 'delete')}"
        )


def letter_notes(
    address: AddressSettings, topic: TopicDescription, accepted: TopicDescription | None
) -> Iterable[str]:
    """Yield what is worth knowing of it, and stops nothing."""
    if accepted is not None and topic.message_bytes_max < accepted.message_bytes_max:
        yield (
            f"{topic.name} (dead letters of {address.name}) has max.message.bytes={topic.message_bytes_max}, {accepted.name} has "
            f"{accepted.message_bytes_max}: of larger messages the digest alone gets there: "
            f"{alter(topic.name, 'max.message.bytes', accepted.message_bytes_max)}"
        )


def no_letters(address: AddressSettings, name: str) -> str:
    """Return what is said where consumers run, and their dead letters have no topic."""
    return f"{name} (dead letters of {address.name}) does not exist: a consumer makes it when it starts, or when it has its next one"
