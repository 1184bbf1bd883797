"""Requirements for settings of topics: one table for workers, consumers and ``ringfence topics check``. Pure."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from ringfence_kafka.admin.topics import (
    LONG_MAX,
    MESSAGE_BYTES_DEFAULT,
    RECORD_ROOM_BYTES,
    TIMESTAMP_TYPE,
    TopicDescription,
    alter,
    span,
    unreported_settings,
)
from ringfence_kafka.protocol import wire_names

RETENTION_MIN_MS: Final = 24 * 3600 * 1000
"""Recommended minimum retention of inputs, in ms: with less than a day, an outage until the next morning loses messages."""

PROGRESS_LIMITS: Final = {
    # A holder writes up to ten records per second. An opening also reads the active segment, which is never compacted. It has the
    # smallest size that Kafka allows.
    "segment.bytes": 2**20,
    # Commit markers remain for this time. With Kafka's default of one day, four busy partitions keep 270 MB of them.
    "delete.retention.ms": 60 * 1000,
}
"""Upper limits of settings that decide how much compaction leaves in the progress topic."""

Predicate = Callable[[TopicDescription, TopicDescription], bool]
"""Arguments: a topic, and the topic that its records come from."""


@dataclass(frozen=True, slots=True)
class TopicRule:
    """Requirement for topics with certain roles."""

    roles: Collection[str]
    setting: str
    broken: Predicate
    problem: str
    """Consequence for messages, and ``{fix}``: the command that sets the wanted value."""
    wanted: object | None = None
    """Wanted value; None = the value of the topic that its records come from."""
    stops: bool = True
    """Whether a violation stops workers or consumers. Otherwise it is a note."""

    def text(self, topic: TopicDescription, role: str, owner: str, source: TopicDescription) -> str:
        """Return the problem with its remedy."""
        needed = _value(source, self.setting)
        return self.problem.format(
            topic=f"{topic.name} ({role} of {owner})",
            name=topic.name,
            role=role,
            owner=owner,
            source=source.name,
            found=_value(topic, self.setting),
            needed=needed,
            keeps=span(topic.retention_ms),
            source_keeps=span(source.retention_ms),
            fix=alter(topic.name, self.setting, needed if self.wanted is None else self.wanted),
        )


def problems(
    topic: TopicDescription, role: str, owner: str, source: TopicDescription | None = None
) -> list[str]:
    """Return problems that stop a worker or a consumer, each with its remedy. Hidden settings are a problem too.

    Args:
        topic: Description of the topic.
        role: One of the roles in :data:`RULES`.
        owner: Address, or another owner of the topic.
        source: Topic that its records come from; None = skip rules that compare the two.
    """
    if topic.config is None:
        return [unreported_settings(topic.name)]
    return _broken(topic, role, owner, source, stops=True)


def notes(
    topic: TopicDescription, role: str, owner: str, source: TopicDescription | None = None
) -> list[str]:
    """Return remarks that stop nothing. Arguments are those of :func:`problems`."""
    return _broken(topic, role, owner, source, stops=False)


def _broken(
    topic: TopicDescription, role: str, owner: str, source: TopicDescription | None, *, stops: bool
) -> list[str]:
    # A topic violates no comparing rule when it is compared with itself.
    other = topic if source is None else source
    return [
        rule.text(topic, role, owner, other)
        for rule in RULES
        if rule.stops == stops and role in rule.roles and rule.broken(topic, other)
    ]


def _value(topic: TopicDescription, setting: str) -> object:
    if setting == "cleanup.policy":
        return topic.policy_words
    if setting == "max.message.bytes":
        return topic.message_bytes_max
    if setting == TIMESTAMP_TYPE:
        return (topic.config or {}).get(setting)
    return topic.timestamps.get(setting, topic.number(setting, -1))


def _refuses_late(topic: TopicDescription, source: TopicDescription) -> bool:
    """Return whether a topic refuses records after a long wait in the input, although it takes the input's oldest timestamps."""
    oldest, taken = (item.timestamps.get(wire_names.TIMESTAMP_BEFORE) for item in (source, topic))
    if oldest is None or taken is None or topic is source:
        return False
    return oldest <= taken < min(oldest + source.retention_ms, LONG_MAX)


def _is_narrower(setting: str) -> Predicate:
    def broken(topic: TopicDescription, source: TopicDescription) -> bool:
        return setting in topic.timestamps and topic.timestamps[setting] < source.timestamps.get(setting, 0)

    return broken


def _is_above(setting: str, wanted: int) -> Predicate:
    def broken(topic: TopicDescription, _: TopicDescription) -> bool:
        return topic.number(setting, wanted) > wanted

    return broken


TARGET: Final = "target topic"
"""Accepted topic of another address that parts of transactions go to."""
_SHOWN: Final = {TARGET: "accepted topic"}
_RECORDS: Final = ("accepted topic", "quarantine topic", "duplicates topic")
"""Roles whose records have the timestamps of the input. A forwarded record has the time of forwarding."""
_COMPACTED: Final = "{topic} has cleanup.policy={found}, and compaction deletes messages of a group: name another {role}, or {fix}"
_NARROWER: Final = (
    "{topic} has %s={found}, {source} has {needed}, and a record between the two would stop its lane: {fix}"
)
_SMALLER: Final = (
    "{name} (%s of {owner}) has max.message.bytes={found}, {source} has {needed}: larger %s: {fix}"
)
_KEPT: Final = (
    "{topic} keeps messages for {keeps}, {source} for {source_keeps}: messages are deleted there "
    "before they are deleted in the source: {fix}"
)
_UNEXCUSED: Final = "and 'ringfence reconcile' would report as FORGOTTEN what a ring forgot on purpose: {fix}"
_LEFT: Final = (
    "{name} has %s={found}, %s is enough, and a consumer that opens a partition reads all that compaction "
    "leaves: {fix}"
)
_BEFORE: Final = wire_names.TIMESTAMP_BEFORE

_NO_ROOM: Final = TopicRule(
    ("changelog", "quarantine topic"),
    "max.message.bytes",
    lambda topic, _: topic.message_bytes_max < RECORD_ROOM_BYTES,
    "{topic} has max.message.bytes={found}, and records that belong there are larger: {fix}",
    MESSAGE_BYTES_DEFAULT,
)
RULES: Final = (
    TopicRule(
        ("changelog",),
        "cleanup.policy",
        lambda topic, _: topic.cleanup_policy != {"compact"},
        "{topic} has cleanup.policy={found}, and retention would delete duplicate IDs: {fix}",
        "compact",
    ),
    TopicRule(
        ("input topic", "forward topic", *_RECORDS),
        "cleanup.policy",
        lambda topic, _: "compact" in topic.cleanup_policy,
        _COMPACTED,
        "delete",
    ),
    TopicRule(
        ("progress",),
        "cleanup.policy",
        lambda topic, _: topic.cleanup_policy != {"compact"},
        "{topic} has cleanup.policy={found}, and retention would delete what consumers have finished: {fix}",
        "compact",
    ),
    TopicRule(
        ("dead letters",),
        "cleanup.policy",
        lambda topic, _: "compact" in topic.cleanup_policy,
        "{topic} has cleanup.policy={found}, and compaction would delete all dead letters of a group but the last: {fix}",
        "delete",
    ),
    *(
        TopicRule(_RECORDS, setting, _is_narrower(setting), _NARROWER % setting)
        for setting in (wire_names.TIMESTAMP_AFTER, _BEFORE)
    ),
    _NO_ROOM,
    TopicRule(
        ("input topic",),
        "retention.ms",
        lambda topic, _: topic.retention_ms < RETENTION_MIN_MS,
        "{topic} keeps messages for {keeps}: what no worker has processed by then is lost, also while workers restart: {fix}, "
        "or longer than your longest outage",
        RETENTION_MIN_MS,
        stops=False,
    ),
    TopicRule(
        ("accepted topic", TARGET),
        "retention.ms",
        lambda topic, source: topic.retention_ms < source.retention_ms,
        "{name} (accepted topic of {owner}) keeps messages for {keeps} from their acceptance, {source} for "
        "{source_keeps}: consumers that are away for longer lose some, and report GAP",
        stops=False,
    ),
    *(
        TopicRule(
            (role,),
            "max.message.bytes",
            lambda topic, source: topic.message_bytes_max < source.message_bytes_max,
            _SMALLER % (_SHOWN.get(role, role), fate),
            stops=False,
        )
        for role, fate in (
            ("accepted topic", "messages go to quarantine"),
            (TARGET, "parts go to quarantine, each with its whole transaction"),
            ("forward topic", "messages outside their home partition go to quarantine"),
            (
                "quarantine topic",
                "messages leave only size and digest there, and their content is in the input only",
            ),
            ("duplicates topic", "duplicates go to quarantine"),
        )
    ),
    TopicRule(
        ("quarantine topic", "duplicates topic"),
        "retention.ms",
        lambda topic, source: topic.retention_ms < source.retention_ms,
        _KEPT,
        stops=False,
    ),
    TopicRule(
        _RECORDS,
        TIMESTAMP_TYPE,
        lambda topic, _: topic.writes_time,
        "{topic} has message.timestamp.type={found}: the broker replaces the timestamps of messages, and 'ringfence reconcile' cannot "
        "compare them with the input's: {fix}",
        "CreateTime",
        stops=False,
    ),
    TopicRule(
        _RECORDS,
        _BEFORE,
        _refuses_late,
        f"{{topic}} has {_BEFORE}={{found}}, from when a message is written there; {{source}} has {{needed}} and keeps messages for "
        "{source_keeps}: one that waits for so long would stop its lane: {fix}",
        LONG_MAX,
        stops=False,
    ),
    TopicRule(
        ("dead letters",),
        "max.message.bytes",
        lambda topic, source: topic.message_bytes_max < source.message_bytes_max,
        "{topic} has max.message.bytes={found}, {source} has {needed}: only the digest of larger messages "
        "is written there: {fix}",
        stops=False,
    ),
    TopicRule(
        ("journal",),
        "cleanup.policy",
        lambda topic, _: "compact" in topic.cleanup_policy,
        f"{{name}} has cleanup.policy={{found}}, which keeps only the last record of each lane, {_UNEXCUSED}",
        "delete",
        stops=False,
    ),
    TopicRule(
        ("journal",),
        "retention.ms",
        lambda topic, _: "compact" not in topic.cleanup_policy and topic.retention_ms != math.inf,
        f"{{name}} has retention.ms={{found}}, which deletes them in the end, {_UNEXCUSED}",
        -1,
        stops=False,
    ),
    *(
        TopicRule(
            ("progress",), setting, _is_above(setting, wanted), _LEFT % (setting, wanted), wanted, stops=False
        )
        for setting, wanted in PROGRESS_LIMITS.items()
    ),
)
"""All rules, in the order in which problems are reported."""


def no_room(topic: str, role: str, owner: str, bytes_max: int) -> str:
    """Return the problem of a topic that refused an essential record."""
    described = TopicDescription(topic, 1, {"max.message.bytes": str(bytes_max)})
    return _NO_ROOM.text(described, role, owner, described)
