"""Description of a topic, and texts about topics. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ringfence_kafka.protocol import wire_names

LONG_MAX: Final = 2**63 - 1
"""Value of a Kafka setting that means no limit."""

SETTINGS: Final = (
    "cleanup.policy",
    "delete.retention.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    wire_names.TIMESTAMP_AFTER,
    wire_names.TIMESTAMP_BEFORE,
)
"""All settings that Ringfence reads."""

TIMESTAMP_TYPE: Final = "message.timestamp.type"
LOG_APPEND_TIME: Final = "LogAppendTime"

RECORD_ROOM_BYTES: Final = 2048
"""Size of records that changelog and quarantine topics must take, in bytes: a slot, a meta record, or a digest of a record."""

MESSAGE_BYTES_DEFAULT: Final = 1_048_588
"""Kafka's default of ``max.message.bytes``."""

ADDED_BYTES: Final = 65_536
"""Maximum size that Ringfence's headers add to an input record, in bytes."""

OUTPUT_CONFIG: Final[Mapping[str, str]] = {
    # Records keep the timestamps that the input accepted, whatever the cluster's defaults. Kafka allows one hour ahead of the broker's clock.
    TIMESTAMP_TYPE: "CreateTime",
    wire_names.TIMESTAMP_AFTER: str(LONG_MAX),
    wire_names.TIMESTAMP_BEFORE: str(LONG_MAX),
}
"""Settings of new output topics; all others are the cluster's defaults."""

BROKER_TIME: Final[Mapping[str, str]] = {TIMESTAMP_TYPE: LOG_APPEND_TIME}
"""Setting of topics whose records have the time of writing. The broker's clock sets it: retention uses that clock, and others may be
wrong."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """Description of a topic from the cluster.

    Attributes:
        name: Name of the topic.
        partitions: Its partition count.
        config: Its settings, as far as :data:`SETTINGS` has them; None = the cluster did not report them.
    """

    name: str
    partitions: int
    config: Mapping[str, str] | None

    @property
    def cleanup_policy(self) -> frozenset[str]:
        """Words of ``cleanup.policy``."""
        words = (self.config or {}).get("cleanup.policy", "delete")
        return frozenset(word.strip() for word in words.split(","))

    @property
    def policy_words(self) -> str:
        """Words of ``cleanup.policy`` as one text."""
        return ",".join(sorted(self.cleanup_policy))

    @property
    def timestamps(self) -> Mapping[str, int]:
        """Maximum distance of a timestamp from the broker's clock, in ms, by setting.

        Empty = the broker sets timestamps itself, or does not know the settings.
        """
        bounds = (wire_names.TIMESTAMP_AFTER, wire_names.TIMESTAMP_BEFORE)
        return (
            {} if self.writes_time else {bound: self.number(bound, 0) for bound in bounds if self.has(bound)}
        )

    @property
    def retention_ms(self) -> float:
        """Retention of a record after its timestamp, in ms; also infinite if the broker sets timestamps."""
        retention = self.number("retention.ms", -1)
        forever = self.writes_time or retention < 0 or "delete" not in self.cleanup_policy
        return math.inf if forever else retention

    @property
    def message_bytes_max(self) -> int:
        """Size limit of one record batch of the topic, in bytes."""
        return self.number("max.message.bytes", MESSAGE_BYTES_DEFAULT)

    @property
    def writes_time(self) -> bool:
        """Whether the broker replaces the timestamps of records with the time of writing."""
        return (self.config or {}).get(TIMESTAMP_TYPE) == LOG_APPEND_TIME

    def has(self, setting: str) -> bool:
        """Return whether the cluster reported this setting."""
        return setting in (self.config or {})

    def number(self, setting: str, default: int) -> int:
        """Return a numeric setting; the default if the cluster did not report it."""
        return int((self.config or {}).get(setting, default))


class Described(NamedTuple):
    """Answer of the cluster about several topics."""

    topics: dict[str, TopicDescription]
    """Topics that exist and that this user may see."""
    refused: frozenset[str]
    """Topics that this user may not see, whether they exist or not."""


def missing(role: str, address: str, topic: str) -> str:
    """Return the error text for a topic that does not exist."""
    return f"{topic} ({role} of {address}) does not exist, or this user may not see it: run 'ringfence topics create'"


def unreported_settings(topic: str) -> str:
    """Return the error text for a topic whose settings the cluster does not report."""
    return (
        f"{topic}: the cluster does not report its configuration: allow this user DescribeConfigs on the "
        "topic"
    )


def alter(topic: str, setting: str, value: object) -> str:
    """Return the command that changes a setting."""
    return f"kafka-configs.sh --bootstrap-server … --alter --topic {topic} --add-config {setting}={value}"


def lacking(kind: str, name: str, rights: Iterable[str]) -> str:
    """Return the error text for access rights that a worker lacks."""
    return f"{kind} {name}: this user may not use it as a worker does: allow {' and '.join(sorted(rights))} on it"


def span(ms: float) -> str:
    """Return a duration in readable form."""
    if ms == math.inf:
        return "ever"
    for unit, size in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000)):
        if ms >= 2 * size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms / 1000:.3g} s"
