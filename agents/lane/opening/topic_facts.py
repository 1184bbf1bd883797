"""Facts about a lane's topics, queried at each opening, and the problems that keep the lane closed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agents.lane.errors import LaneRefusedError, TopicMissingError
from agents.lane.opening.identity import LaneIdentity
from agents.output.topic_batches import Outputs
from agents.topic_checks.topics import missing_topics, topic_faults
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topics import TopicDescription

_DAY_MS: Final = 24 * 3600 * 1000
AGED_SHARE: Final = 0.05
"""Share of an output's retention. A record that is older than this when it is written would be kept for a much shorter time."""
AGED_MS_MIN: Final = 60_000


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Facts about topics that exist and fit the lane."""

    topics: Mapping[str, TopicDescription]
    outputs: Outputs
    delete_retention_s: float
    """Time that a tombstone stays in the changelog, in seconds."""
    topic_ids: dict[str, str]
    """Kafka's IDs of the input topic, the forward topic if there is one, and the changelog."""

    @property
    def counts(self) -> dict[str, int]:
        """Partition counts by topic."""
        return {name: topic.partitions for name, topic in self.topics.items()}


async def ask_facts(cluster: Cluster, lane: LaneIdentity, denied: Callable[[], Sequence[str]]) -> TopicFacts:
    """Query the topics of a lane. ``denied``: returns missing access rights, one line each.

    Raises:
        TopicMissingError: a topic does not exist.
        LaneRefusedError: a topic does not fit, or a right is missing.
    """
    app_id, address, targets = lane.app_id, lane.address, lane.targets
    elsewhere = [target.accepted_topic for target in targets]
    described = await cluster.topics.describe([*address.topics(app_id).values(), *elsewhere])
    existing = described.topics
    if absent := missing_topics(app_id, address, described, targets):
        raise TopicMissingError("; ".join(absent))
    if faults := [*topic_faults(app_id, address, existing, targets), *denied()]:
        raise LaneRefusedError("; ".join(faults))
    forward = [lane.forward_topic] if address.forwards else []
    topic_ids = await cluster.topics.ids([address.input_topic, *forward, lane.changelog])
    outputs = Outputs(
        {name: topic.partitions for name, topic in existing.items()},
        {name: topic.message_bytes_max for name, topic in existing.items()},
        {value.name: max(AGED_MS_MIN, AGED_SHARE * value.retention_ms) for value in existing.values()},
    )
    delete_retention_s = existing[lane.changelog].number("delete.retention.ms", _DAY_MS) / 1000
    return TopicFacts(existing, outputs, delete_retention_s, topic_ids)
