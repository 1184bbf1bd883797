"""What the topics of an address must be like. Pure: descriptions in, findings out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from conf import wire
from conf.settings import AddressSettings, Settings
from ringfence_client import progress

REPLICAS_MAX: Final = 3
"""With replication_factor = 0: what Kafka's own documentation runs in production, where there are brokers for it."""

CHANGELOG_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    # Kafka compacts closed segments only: with its default of 1 GiB a lane would restore from up to 1 GiB of
    # slots overwritten long ago.
    "segment.bytes": str(64 * 2**20),
    "min.cleanable.dirty.ratio": "0.3",
    # Kafka's own default, written down: a lane judges by it whether its RocksDB is too old to trust.
    "delete.retention.ms": str(24 * 3600 * 1000),
}

CLEANING: Final = ("segment.bytes", "delete.retention.ms")
"""How much compaction leaves of the progress topic."""

TIMESTAMP_MS_MAX: Final = 2**63 - 1
"""Takes every timestamp."""

OUTPUT_CONFIG: Final[Mapping[str, str]] = {
    # Records keep their timestamps, whatever the input took: Kafka's default is at most an hour ahead.
    wire.TIMESTAMP_AFTER: str(TIMESTAMP_MS_MAX),
    wire.TIMESTAMP_BEFORE: str(TIMESTAMP_MS_MAX),
}

FORWARD_CONFIG: Final[Mapping[str, str]] = {
    **OUTPUT_CONFIG,
    "cleanup.policy": "delete",
    # How long a home lane may be away: it counts from the forwarding. Kafka's own defaults, whatever the cluster's are.
    "retention.ms": str(7 * 24 * 3600 * 1000),
    "retention.bytes": "-1",
    # A forwarded record carries two headers more than the input's largest.
    "max.message.bytes": str(1_048_588 + 65_536),
}


JOURNAL_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    # A few records a year where rings are persistent, one a lane and opening where they are not: nothing is worth losing.
    "retention.ms": "-1",
    "retention.bytes": "-1",
}


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the cluster has it.

    Attributes:
        name: Its name.
        partitions: Its partition count.
        cleanup_policy: The words of ``cleanup.policy``; None = the cluster did not tell.
        timestamps: How far a timestamp may be from the broker's clock, in ms, by the setting's name; empty = the broker
            writes its own (``message.timestamp.type=LogAppendTime``), or does not know the settings.
        cleaning: :data:`CLEANING`, by the setting's name; empty = the cluster did not tell.
    """

    name: str
    partitions: int
    cleanup_policy: frozenset[str] | None
    timestamps: Mapping[str, int] = field(default_factory=dict)
    cleaning: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that is to be created."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(slots=True)
class Findings:
    """What a comparison found: faults keep a worker from its work, notes are worth knowing."""

    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def required(settings: Settings) -> list[str]:
    """Names of all topics that the configuration needs, in the order in which a person reads them."""
    topics = [topic for address in settings.addresses for topic in address.topics(settings.app.id).values()]
    return [*topics, wire.journal_topic(settings.app.id)] if topics else []


def missing(settings: Settings, existing: Mapping[str, TopicDescription], brokers: int) -> list[TopicPlan]:
    """What to create so that all topics are there; existing ones stay as they are.

    The changelog has a partition for each lane, and the input topic as it *is* decides how many lanes there are.
    """
    plans: list[TopicPlan] = []
    for address in settings.addresses:
        present = existing.get(address.input_topic)
        lanes = present.partitions if present else address.partitions
        replicas = address.replication_factor or min(REPLICAS_MAX, brokers)
        own: dict[str, tuple[int, Mapping[str, str]]] = {
            "changelog": (lanes, CHANGELOG_CONFIG),
            "forward topic": (lanes, FORWARD_CONFIG),
            "input topic": (address.partitions, {}),
        }
        plans += [
            TopicPlan(topic, partitions, replicas, config)
            for role, topic in address.topics(settings.app.id).items()
            for partitions, config in [own.get(role, (address.partitions, OUTPUT_CONFIG))]
        ]
    if settings.addresses:
        defaults = settings.address_defaults.replication_factor
        replicas = defaults or min(REPLICAS_MAX, brokers)
        plans.append(TopicPlan(wire.journal_topic(settings.app.id), 1, replicas, JOURNAL_CONFIG))
    return [plan for plan in plans if plan.name not in existing]


def compare(settings: Settings, existing: Mapping[str, TopicDescription]) -> Findings:
    """Hold the topics of all addresses against what Ringfence needs."""
    findings = Findings()
    journal = wire.journal_topic(settings.app.id)
    if settings.addresses and journal not in existing:
        findings.faults.append(
            f"{journal} (journal of rings) does not exist, or this user may not see it: {_CREATE}"
        )
    for address in settings.addresses:
        findings.faults += _flow_faults(settings, address, existing)
        findings.faults += _timestamp_faults(settings, address, existing)
        findings.faults += _changelog_faults(settings, address, existing)
        present = existing.get(address.input_topic)
        if present is not None and present.partitions != address.partitions:
            findings.notes.append(
                f"{present.name} has {present.partitions} partitions, the configuration says partitions = "
                f"{address.partitions}: an existing topic is used as it is"
            )
    _judge_progress(settings, existing, findings)
    return findings


def _judge_progress(settings: Settings, existing: Mapping[str, TopicDescription], findings: Findings) -> None:
    """The topic of the leases, which the first consumer makes: an opening should read little. No worker needs it."""
    topic = existing.get(wire.progress_topic(settings.app.id))
    if topic is None:
        return
    for setting, found in topic.cleaning.items():
        if found > int(wanted := progress.TOPIC_CONFIG[setting]):
            findings.notes.append(
                f"{topic.name} has {setting}={found}, {wanted} is enough, and whoever opens a partition reads what "
                f"compaction leaves: kafka-configs.sh --alter --topic {topic.name} --add-config {setting}={wanted}"
            )


def _flow_faults(
    settings: Settings, address: AddressSettings, existing: Mapping[str, TopicDescription]
) -> Iterable[str]:
    """Faults of the topics that carry messages: they exist, and compaction leaves them alone."""
    for role, name in address.topics(settings.app.id).items():
        if role == "changelog":
            continue
        topic = existing.get(name)
        if topic is None:
            yield f"{name} ({role} of {address.name}) does not exist, or this user may not see it: {_CREATE}"
        elif topic.cleanup_policy is None:
            yield _untold(name)
        elif "compact" in topic.cleanup_policy:
            yield (
                f"{name} ({role} of {address.name}) has cleanup.policy={_words(topic)}, and compaction deletes "
                f"messages of a group: set cleanup.policy=delete, or name another {role}"
            )
    forward = existing.get(wire.forward_topic(settings.app.id, address.name))
    source = existing.get(address.input_topic)
    if forward is not None and source is not None and forward.partitions != source.partitions:
        yield (
            f"{forward.name} (forward topic of {address.name}) has {forward.partitions} partitions, {source.name} has "
            f"{source.partitions}: delete it once its lag is 0, and run 'ringfence topics create'"
        )


def _timestamp_faults(
    settings: Settings, address: AddressSettings, existing: Mapping[str, TopicDescription]
) -> Iterable[str]:
    """Outputs take the timestamps that the input takes: a record that is refused stops its lane."""
    source = existing.get(address.input_topic)
    if source is None:
        return
    for role, name in address.topics(settings.app.id).items():
        # What is forwarded carries the time of forwarding.
        if role in {"input topic", "changelog", "forward topic"} or name not in existing:
            continue
        for setting, taken in existing[name].timestamps.items():
            needed = source.timestamps.get(setting, 0)
            if taken < needed:
                yield (
                    f"{name} ({role} of {address.name}) has {setting}={taken}, {source.name} has {needed}, and a record "
                    f"between the two would stop its lane: kafka-configs.sh --alter --topic {name} --add-config "
                    f"{setting}={needed}"
                )


def _changelog_faults(
    settings: Settings, address: AddressSettings, existing: Mapping[str, TopicDescription]
) -> Iterable[str]:
    """Faults of the topic that keeps the rings: compacted, never shortened by retention, a partition a lane."""
    name = wire.changelog_topic(settings.app.id, address.name)
    topic, source = existing.get(name), existing.get(address.input_topic)
    if topic is None:
        yield f"{name} (changelog of {address.name}) does not exist, or this user may not see it: {_CREATE}"
        return
    if topic.cleanup_policy is None:
        yield _untold(name)
    elif topic.cleanup_policy != {"compact"}:
        yield (
            f"{name} (changelog of {address.name}) has cleanup.policy={_words(topic)}, and retention would delete "
            "duplicate IDs: set cleanup.policy=compact"
        )
    if source is not None and topic.partitions != source.partitions:
        yield (
            f"{name} (changelog of {address.name}) has {topic.partitions} partitions, {source.name} has "
            f"{source.partitions}: recreate {source.name} with {topic.partitions}, or delete the changelog, which "
            f"forgets all duplicate IDs of {address.name}, and run 'ringfence topics create'"
        )


_CREATE: Final = "run 'ringfence topics create'"


def _untold(name: str) -> str:
    return (
        f"{name}: the cluster does not tell its configuration: allow this user DescribeConfigs on the topic"
    )


def _words(topic: TopicDescription) -> str:
    return ",".join(sorted(topic.cleanup_policy or ()))
