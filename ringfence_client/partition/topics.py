"""Creates the topics that a consumer needs beside its accepted topic."""

import logging
from typing import Final

from ringfence_client.partition.dead_letters import DeadLetterTopic
from ringfence_client.progress import progress_topic
from ringfence_client.progress.topic_checks import LETTERS, PROGRESS
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topic_rules import problems
from ringfence_kafka.admin.topics import ADDED_BYTES, BROKER_TIME, MESSAGE_BYTES_DEFAULT, missing
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import MissingTopicError, TopicError
from ringfence_kafka.protocol import wire_names

log: Final = logging.getLogger("ringfence.consumer")

APPEAR_LIMIT_S: Final = 60.0
"""Time limit for new topics to appear, in seconds. A broker creates some hundred partitions a second, in order of the requests."""


async def prepare(settings: Settings, address: AddressSettings, cluster: Cluster) -> DeadLetterTopic:
    """Find the accepted topic; find or create the progress and dead-letter topics; return the latter. Idempotent."""
    letters, kept = wire_names.dead_letter_topic(address.name), wire_names.progress_topic(settings.app.id)
    counts = await cluster.topics.partition_counts([address.accepted_topic, letters, kept])
    if address.accepted_topic not in counts:
        raise MissingTopicError(missing("accepted topic", address.name, address.accepted_topic))
    for topic in {letters, kept} - counts.keys():
        partitions, config = progress_topic.PARTITIONS, dict(progress_topic.TOPIC_CONFIG)
        if topic == letters:
            partitions = counts[address.accepted_topic]
            config = {**BROKER_TIME, "max.message.bytes": str(await _letter_bytes_max(address, cluster))}
        log.info("%s is missing: creating it with %d partitions", topic, partitions)
        await cluster.topics.create(topic, partitions, address.replication_factor, config)
    # Brokers show a new topic at different times.
    described = await cluster.topics.await_created([letters, kept], APPEAR_LIMIT_S)
    faults = problems(described[letters], LETTERS, address.name) + problems(described[kept], *PROGRESS)
    if faults:
        raise TopicError("; ".join(faults))
    return DeadLetterTopic(letters, described[letters].partitions, described[letters].message_bytes_max)


async def _letter_bytes_max(address: AddressSettings, cluster: Cluster) -> int:
    """Return the message limit of a new dead-letter topic, in bytes. A dead letter has additional headers."""
    described = (await cluster.topics.describe([address.accepted_topic])).topics
    accepted = described.get(address.accepted_topic)
    taken = MESSAGE_BYTES_DEFAULT if accepted is None else accepted.message_bytes_max
    return max(MESSAGE_BYTES_DEFAULT, taken) + ADDED_BYTES
