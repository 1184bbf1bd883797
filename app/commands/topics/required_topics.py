"""Topics that the configuration needs, and findings about existing ones. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from agents.topic_checks import topics as topic_faults
from ringfence_client.progress import progress_topic as progress
from ringfence_client.progress import topic_checks as consumer_faults
from ringfence_kafka.admin import topic_rules
from ringfence_kafka.admin.topics import (
    ADDED_BYTES,
    BROKER_TIME,
    MESSAGE_BYTES_DEFAULT,
    OUTPUT_CONFIG,
    Described,
    TopicDescription,
)
from ringfence_kafka.config.chains import upstream_first
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import TopicError
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.lane_layout import LaneLayout
from ringfence_kafka.wording import counted

REPLICAS_MAX: Final = 3
"""Maximum number of replicas with replication_factor = 0."""

CHANGELOG_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    # Kafka compacts only closed segments. With its default, a lane would restore from up to 1 GiB of old
    # slots.
    "segment.bytes": str(64 * 2**20),
    "min.cleanable.dirty.ratio": "0.3",
    # Kafka's default, set explicitly because lanes use it to judge whether their RocksDB is too old
    "delete.retention.ms": str(24 * 3600 * 1000),
}

FORWARD_CONFIG: Final[Mapping[str, str]] = {
    **OUTPUT_CONFIG,
    **BROKER_TIME,
    "cleanup.policy": "delete",
    # The time that a home lane may be away: Kafka's own defaults, whatever the cluster's defaults are.
    "retention.ms": str(7 * 24 * 3600 * 1000),
    "retention.bytes": "-1",
    # a forwarded record has two headers more than the input's largest record
    "max.message.bytes": str(MESSAGE_BYTES_DEFAULT + ADDED_BYTES),
}


JOURNAL_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    # a few records a year if rings are persistent, else one for each opening of a lane
    "retention.ms": "-1",
    "retention.bytes": "-1",
}


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """Topic to create."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(slots=True)
class Findings:
    """Faults stop addresses or consumers; notes stop nothing."""

    shared: list[str] = field(default_factory=list)
    """Faults of all addresses."""
    by_address: dict[str, list[str]] = field(default_factory=dict)
    """Faults of single addresses; every address has a list."""
    consumers: list[str] = field(default_factory=list)
    """Faults that stop consumers, but not workers."""
    notes: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """Distinct faults of workers."""
        own = [fault for faults in self.by_address.values() for fault in faults]
        return list(dict.fromkeys([*self.shared, *own]))

    def merge(self, others: "Findings") -> None:
        """Add other findings. An address with faults keeps only its own."""
        self.shared += others.shared
        for name, faults in others.by_address.items():
            self.by_address[name] = self.by_address[name] or faults
        self.consumers += others.consumers
        self.notes += others.notes

    @property
    def fatal(self) -> bool:
        """Whether no address can work."""
        return bool(self.shared) or all(self.by_address.values())


def required(settings: Settings) -> list[str]:
    """Return the names of all topics that the configuration needs."""
    topics = dict.fromkeys(
        topic for address in settings.addresses for topic in address.topics(settings.app.id).values()
    )
    return [*topics, wire_names.journal_topic(settings.app.id)] if topics else []


def missing(
    settings: Settings,
    existing: Mapping[str, TopicDescription],
    brokers: int,
    recorded: Mapping[str, int] = MappingProxyType({}),
    bytes_max: int = MESSAGE_BYTES_DEFAULT,
) -> list[TopicPlan]:
    """Return the topics to create. Existing ones are not changed.

    Outputs follow an existing input: same partitions and retention, with room for its largest message and
    Ringfence's headers. Changelog and forward topic have a partition for each lane. A deleted topic gets the
    number of partitions that its lanes have recorded. If an accepted topic is also the input of another
    address, it is created as an accepted topic. The progress topic, which consumers create, is created if it
    was deleted.

    ``recorded``: partition counts that lanes have recorded, by topic. ``bytes_max``: ``max.message.bytes`` of
    topics created without it.

    Raises:
        TopicError: An address has more lanes than its input has partitions.
    """
    planned: dict[str, TopicPlan] = {}
    for address in upstream_first(settings.addresses):
        present = existing.get(address.input_topic)
        if present is None and (plan := planned.get(address.input_topic)):  # another address's output
            planned_config = {"max.message.bytes": str(bytes_max), **plan.config}
            present = TopicDescription(plan.name, plan.partitions, planned_config)
        partitions = present.partitions if present else recorded.get(address.input_topic, address.partitions)
        if address.lanes > partitions:
            has = f"{address.input_topic} {'has' if present else 'would get'} {counted(partitions, 'partition')}"
            raise TopicError(
                f"no topic was created: {address.name} has lanes = {address.lanes}, and {has}: a lane would have no partition. Set lanes = "
                f"{partitions} or lower, or {'grow the topic' if present else 'partitions'} to {address.lanes}"
            )
        lanes = LaneLayout.from_setting(address.lanes, partitions).lanes
        replicas = address.replication_factor or min(REPLICAS_MAX, brokers)
        known = present is not None and present.config is not None
        room = (present.message_bytes_max if present and known else bytes_max) + ADDED_BYTES
        forward_room = max(room, MESSAGE_BYTES_DEFAULT + ADDED_BYTES)
        own: dict[str, tuple[int, Mapping[str, str]]] = {
            "changelog": (lanes, CHANGELOG_CONFIG),
            "forward topic": (lanes, {**FORWARD_CONFIG, "max.message.bytes": str(forward_room)}),
            "input topic": (partitions, {}),
        }
        follows = {"max.message.bytes": str(room)} if known else {}
        output = (partitions, {**OUTPUT_CONFIG, **follows, **_kept(present)})
        for role, topic in address.topics(settings.app.id).items():
            count, config = own.get(role, output)
            planned.setdefault(topic, TopicPlan(topic, recorded.get(topic, count), replicas, config))
    plans = list(planned.values())
    if settings.addresses:
        defaults = settings.address_defaults.replication_factor
        replicas = defaults or min(REPLICAS_MAX, brokers)
        plans.append(TopicPlan(wire_names.journal_topic(settings.app.id), 1, replicas, JOURNAL_CONFIG))
        if existing_letters(settings, existing):
            name = wire_names.progress_topic(settings.app.id)
            plans.append(TopicPlan(name, progress.PARTITIONS, replicas, progress.TOPIC_CONFIG))
    return [plan for plan in plans if plan.name not in existing]


def _kept(source: TopicDescription | None) -> dict[str, str]:
    if source is None or "delete" not in source.cleanup_policy:
        return {}
    return {
        name: source.config[name]
        for name in ("retention.bytes", "retention.ms")
        if source.has(name) and source.config
    }


def replica_faults(settings: Settings, brokers: int) -> list[str]:
    """Return a fault for each replication factor above the number of brokers."""
    stated = {"address_defaults": settings.address_defaults.replication_factor}
    stated |= {address.name: address.replication_factor for address in settings.addresses}
    owners: dict[int, list[str]] = {}
    for name, factor in stated.items():
        if factor > brokers:
            owners.setdefault(factor, []).append(name)
    return [
        f"replication_factor = {factor} ({', '.join(names)}): the cluster shows {counted(brokers, 'broker')}, and creates no topic "
        "with more replicas: lower it, set it to 0, or start the brokers that are away"
        for factor, names in owners.items()
    ]


def compare(settings: Settings, described: Described) -> Findings:
    """Compare the topics of all addresses with the requirements."""
    app_id, existing = settings.app.id, described.topics
    findings = Findings()
    journal = existing.get(wire_names.journal_topic(app_id))
    if journal is None:
        findings.merge(Findings(shared=[topic_faults.missing_journal(app_id)]))
    else:
        findings.merge(Findings(notes=topic_rules.notes(journal, "journal", "all addresses")))
    for address in settings.addresses:
        targets = settings.transaction_targets(address)
        findings.by_address[address.name] = [
            *topic_faults.missing_topics(app_id, address, described, targets),
            *topic_faults.topic_faults(app_id, address, existing, targets),
        ]
        findings.merge(Findings(notes=topic_faults.notes(app_id, address, existing, targets)))
    findings.merge(_compare_consumers(settings, described))
    return findings


def _compare_consumers(settings: Settings, described: Described) -> Findings:
    name = wire_names.progress_topic(settings.app.id)
    progress_topic = described.topics.get(name)
    if progress_topic is None:  # not a fault, since the first consumer creates it
        letters = existing_letters(settings, described.topics)
        unseen = name in described.refused
        return Findings(consumers=[] if unseen else consumer_faults.progress_deleted(name, letters))
    faults = topic_rules.problems(progress_topic, *consumer_faults.PROGRESS)
    notes = topic_rules.notes(progress_topic, *consumer_faults.PROGRESS)
    for address in settings.addresses:
        name = wire_names.dead_letter_topic(address.name)
        if (topic := described.topics.get(name)) is not None:
            faults += topic_rules.problems(topic, consumer_faults.LETTERS, address.name)
            accepted = described.topics.get(address.accepted_topic)
            notes += topic_rules.notes(topic, consumer_faults.LETTERS, address.name, accepted)
        elif name not in described.refused:
            notes.append(consumer_faults.no_letters(address, name))
    return Findings(consumers=faults, notes=notes)


def existing_letters(settings: Settings, existing: Iterable[str]) -> list[str]:
    """Return the names of the existing dead-letter topics."""
    return sorted(
        {wire_names.dead_letter_topic(address.name) for address in settings.addresses}.intersection(existing)
    )
