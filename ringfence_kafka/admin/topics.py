"""Description of a topic, and Ringfence's requirements for one. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ringfence_kafka.protocol import wire_names

LONG_MAX: Final = 2**63 - 1
"""In a setting of Kafka's: without limit."""

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
"""All that is ever looked at."""

RECORD_ROOM_BYTES: Final = 2048
"""Bytes of a record that changelog and quarantine topics must take: a slot of a ring, a meta record, the bare form of a record that fits
nowhere."""

MESSAGE_BYTES_DEFAULT: Final = 1_048_588
"""Kafka's own ``max.message.bytes``."""

ADDED_BYTES: Final = 65_536
"""Bytes that Ringfence's headers may add to a record of an input."""

OUTPUT_CONFIG: Final[Mapping[str, str]] = {
    # Records keep their timestamps, whatever the input took: Kafka's default is at most an hour ahead.
    wire_names.TIMESTAMP_AFTER: str(LONG_MAX),
    wire_names.TIMESTAMP_BEFORE: str(LONG_MAX),
}
"""How outputs are made; the rest is as the cluster has it."""

BROKER_TIME: Final[Mapping[str, str]] = {"message.timestamp.type": "LogAppendTime"}
"""Setting of topics whose records carry the time of writing. The broker's clock gives it, because retention goes by it and our clocks may
be wrong."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the cluster has it.

    Attributes:
        name: Its name.
        partitions: Its partition count.
        config: Its settings, those of :data:`SETTINGS` that the cluster knows; None = the cluster did not tell.
    """

    name: str
    partitions: int
    config: Mapping[str, str] | None

    @property
    def cleanup_policy(self) -> frozenset[str]:
        """The words of ``cleanup.policy``."""
        words = (self.config or {}).get("cleanup.policy", "delete")
        return frozenset(word.strip() for word in words.split(","))

    @property
    def policy_words(self) -> str:
        """The same as one text."""
        return ",".join(sorted(self.cleanup_policy))

    @property
    def timestamps(self) -> Mapping[str, int]:
        """How far a timestamp may be from the broker's clock, in ms, by the setting's name.

        Empty = the broker writes its own, or does not know the settings.
        """
        bounds = (wire_names.TIMESTAMP_AFTER, wire_names.TIMESTAMP_BEFORE)
        return (
            {} if self._writes_time else {bound: self.number(bound, 0) for bound in bounds if self.has(bound)}
        )

    @property
    def retention_ms(self) -> float:
        """Return the ms that a record is kept after its timestamp; infinity also if the broker writes the timestamp."""
        retention = self.number("retention.ms", -1)
        forever = self._writes_time or retention < 0 or "delete" not in self.cleanup_policy
        return math.inf if forever else retention

    @property
    def message_bytes_max(self) -> int:
        """The largest record batch that it takes."""
        return self.number("max.message.bytes", MESSAGE_BYTES_DEFAULT)

    @property
    def _writes_time(self) -> bool:
        return (self.config or {}).get("message.timestamp.type") == "LogAppendTime"

    def has(self, setting: str) -> bool:
        """Whether the cluster reported this setting."""
        return setting in (self.config or {})

    def number(self, setting: str, default: int) -> int:
        """Return a setting; the default where the cluster does not know it."""
        return int((self.config or {}).get(setting, default))


class Described(NamedTuple):
    """The cluster's answer on the topics that it was asked for."""

    topics: dict[str, TopicDescription]
    """Those that exist and that this user may see."""
    refused: frozenset[str]
    """Those that this user may not see, whether they exist or not."""


def missing(role: str, address: str, topic: str) -> str:
    """Return the error text for a topic that does not exist."""
    return f"{topic} ({role} of {address}) does not exist, or this user may not see it: run 'ringfence topics create'"


def untold(topic: str) -> str:
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
    """Return a length of time as a person says it."""
    if ms == math.inf:
        return "ever"
    for unit, size in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000)):
        if ms >= 2 * size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms / 1000:.3g} s"
