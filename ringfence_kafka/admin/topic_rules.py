"""Requirements of the settings of topics: one table for workers, consumers and ``ringfence topics check``. Pure."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from ringfence_kafka.admin.topics import (
    LONG_MAX,
    MESSAGE_BYTES_DEFAULT,
    RECORD_ROOM_BYTES,
    TopicDescription,
    alter,
    span,
    untold,
)
from ringfence_kafka.protocol import wire_names

RETENTION_MIN_MS: Final = 24 * 3600 * 1000
"""A day: an input that keeps messages for less loses some in an outage from one evening to the next morning."""

PROGRESS_LIMITS: Final = {
    # A holder writes up to ten records a second. An opening reads the open segment too, which compaction never touches. It is as small as
    # Kafka allows.
    "segment.bytes": 2**20,
    # Each record's commit marker outlives it for so long: with Kafka's default of a day, 270 MB of four busy partitions.
    "delete.retention.ms": 60 * 1000,
}
"""How much compaction may leave of the progress topic."""

Predicate = Callable[[TopicDescription, TopicDescription], bool]
"""Arguments: a topic, and the topic that its records come from."""


@dataclass(frozen=True, slots=True)
class TopicRule:
    """A requirement of the topics of some roles."""

    roles: Collection[str]
    setting: str
    broken: Predicate
    problem: str
    """Consequence for messages, and ``{fix}``: the command that sets the wanted value."""
    wanted: object | None = None
    """None = the value of the topic that its records come from."""
    stops: bool = True
    """Whether it keeps a worker or a consumer from its work; else it is worth knowing."""

    def text(self, topic: TopicDescription, role: str, owner: str, source: TopicDescription) -> str:
        """Return the problem with the way out."""
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
    """Return what keeps a worker or a consumer from its work, each with the way out; also that the cluster does not show the settings.

    Args:
        topic: As the cluster has it.
        role: One of those in :data:`RULES`.
        owner: An address, or whatever shares the topic.
        source: The topic that its records come from; None = rules that compare with it are left out.
    """
    if topic.config is None:
        return [untold(topic.name)]
    return _broken(topic, role, owner, source, stops=True)


def notes(
    topic: TopicDescription, role: str, owner: str, source: TopicDescription | None = None
) -> list[str]:
    """Return what is worth knowing and stops nothing; arguments as those of :func:`problems`."""
    return _broken(topic, role, owner, source, stops=False)


def _broken(
    topic: TopicDescription, role: str, owner: str, source: TopicDescription | None, *, stops: bool
) -> list[str]:
    # Compared with itself a topic breaks no rule that compares.
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
    return topic.timestamps.get(setting, topic.number(setting, -1))


def _compacts(topic: TopicDescription, _: TopicDescription) -> bool:
    return "compact" in topic.cleanup_policy


def _deletes(topic: TopicDescription, _: TopicDescription) -> bool:
    return topic.cleanup_policy != {"compact"}


def _forgets(topic: TopicDescription, _: TopicDescription) -> bool:
    return "compact" not in topic.cleanup_policy and topic.retention_ms != math.inf


def _has_no_room(topic: TopicDescription, _: TopicDescription) -> bool:
    return topic.message_bytes_max < RECORD_ROOM_BYTES


def _takes_smaller(topic: TopicDescription, source: TopicDescription) -> bool:
    return topic.message_bytes_max < source.message_bytes_max


def _keeps_less(topic: TopicDescription, source: TopicDescription) -> bool:
    return topic.retention_ms < source.retention_ms


def _is_short_lived(topic: TopicDescription, _: TopicDescription) -> bool:
    return topic.retention_ms < RETENTION_MIN_MS


def _refuses_late(topic: TopicDescription, source: TopicDescription) -> bool:
    """Whether a topic refuses records that waited in the input, though it takes the input's oldest."""
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
"""The accepted topic of another address that parts of transactions go to."""
_SHOWN: Final = {TARGET: "accepted topic"}
_RECORDS: Final = ("accepted topic", "quarantine topic", "duplicates topic")
"""Their records carry the timestamps of the input. A forwarded record carries the time of forwarding."""
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
    _has_no_room,
    "{topic} has max.message.bytes={found}, and records that belong there are larger: {fix}",
    MESSAGE_BYTES_DEFAULT,
)
RULES: Final = (
    TopicRule(
        ("changelog",),
        "cleanup.policy",
        _deletes,
        "{topic} has cleanup.policy={found}, and retention would delete duplicate IDs: {fix}",
        "compact",
    ),
    TopicRule(("input topic", "forward topic", *_RECORDS), "cleanup.policy", _compacts, _COMPACTED, "delete"),
    TopicRule(
        ("progress",),
        "cleanup.policy",
        _deletes,
        "{topic} has cleanup.policy={found}, and retention would delete what consumers have finished: {fix}",
        "compact",
    ),
    TopicRule(
        ("dead letters",),
        "cleanup.policy",
        _compacts,
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
        _is_short_lived,
        "{topic} keeps messages for {keeps}: what no worker has processed by then is lost, also while workers restart: {fix}, "
        "or longer than your longest outage",
        RETENTION_MIN_MS,
        stops=False,
    ),
    TopicRule(
        ("accepted topic", TARGET),
        "retention.ms",
        _keeps_less,
        "{name} (accepted topic of {owner}) keeps messages for {keeps} from their acceptance, {source} for "
        "{source_keeps}: consumers that are away for longer lose some, and report GAP",
        stops=False,
    ),
    *(
        TopicRule(
            (role,),
            "max.message.bytes",
            _takes_smaller,
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
    TopicRule(("quarantine topic", "duplicates topic"), "retention.ms", _keeps_less, _KEPT, stops=False),
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
        _takes_smaller,
        "{topic} has max.message.bytes={found}, {source} has {needed}: only the digest of larger messages "
        "is written there: {fix}",
        stops=False,
    ),
    TopicRule(
        ("journal",),
        "cleanup.policy",
        _compacts,
        f"{{name}} has cleanup.policy={{found}}, which keeps only the last record of each lane, {_UNEXCUSED}",
        "delete",
        stops=False,
    ),
    TopicRule(
        ("journal",),
        "retention.ms",
        _forgets,
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
"""In the order in which a person reads them."""


def no_room(topic: str, role: str, owner: str, bytes_max: int) -> str:
    """Return the problem of a topic that refused a record which must never be left out."""
    described = TopicDescription(topic, 1, {"max.message.bytes": str(bytes_max)})
    return _NO_ROOM.text(described, role, owner, described)
