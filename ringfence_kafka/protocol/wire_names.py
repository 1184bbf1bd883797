"""Names on the wire: headers, topics and transactional IDs.

Other programs and the reconciliation run depend on these names; a change of a name changes the interface.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

TOPIC_CHARACTERS_MAX: Final = 249
"""Kafka's limit of a topic name."""

HEADER_SOURCE: Final = "_RF_SOURCE"
"""Header of every accepted record: ``<topic>/<partition>/<offset>`` of its input record."""

HEADER_KEY: Final = "_RF_KEY"
"""Header of an accepted record: key of its input record, if it differs from the group."""

HEADER_SEQUENCE: Final = "_RF_SEQ"
"""Header of an accepted record if its address sets ``lanes``: sequence number of its ID in the lane's ring, as decimal digits. A part of
a transaction has the number of its own ID, or else of the envelope's. Absent = no ID, or detection is off."""

HEADER_VERDICT: Final = "_RF_VERDICT"
"""Header of an accepted record in observe mode: ``ACCEPTED``, ``UNCHECKED``, or ``DUPLICATE``, a space and
``<topic>/<partition>/<offset>`` of the original's input record. The place is absent if the lane no longer knows it. On a diverted
duplicate with another value than its original's: :data:`VERDICT_CONFLICT`."""

VERDICT_CONFLICT: Final = b"CONFLICT"

HEADER_ORIGINAL: Final = "_RF_ORIGINAL"
"""Header of a diverted duplicate: ``<topic>/<partition>/<offset>`` of the original's input record."""

HEADER_SENDER: Final = "_RF_SENDER"
"""Name of the outbox, on an input record that a named outbox sent and on its accepted record."""

HEADER_REASON: Final = "_RF_REASON"
"""Header of a quarantined record: why it was refused permanently."""

HEADER_TIMESTAMP: Final = "_RF_TIMESTAMP"
"""Header of a forwarded record only: timestamp of the input record in ms, eight bytes."""

HEADER_CONSUMER_GROUP: Final = "_RF_CONSUMER_GROUP"
"""Header of a dead letter: consumer group whose handler failed. :data:`HEADER_REASON` has the cause."""

HEADER_ATTEMPTS: Final = "_RF_ATTEMPTS"
"""Header of a dead letter: number of attempts, as decimal digits."""

HEADER_REDRIVEN: Final = "_RF_REDRIVEN"
"""Number of redrives, as decimal digits, on records that a redrive from quarantine publishes and on dead letters of redriven messages.
Absent = never redriven."""

HEADER_TRANSACTION: Final = "_RF_TX"
"""Header of an envelope, whose value lists the parts of a transaction; the value of the header is its format."""

TRANSACTION_FORM: Final = b"json/1"
"""Format of envelopes that this version reads."""

TRANSACTION_PARTS_MAX: Final = 10_000
"""Maximum number of parts of one envelope."""

HEADER_PART: Final = "_RF_TX_PART"
"""Header of an accepted part of a transaction: ``i/N``, part i of N, counted from 1."""

HEADER_HOP: Final = "_RF_BRIDGE_DUPL_ID"
"""Header of a record that a bridge forwarded: its hop, in the form of :mod:`ringfence_kafka.protocol.hop`."""

HEADER_CONFIRMED: Final = "_RF_BRIDGE_CONFIRMED"
"""Header beside :data:`HEADER_HOP`: an offset of the source partition, as decimal digits. When the record was sent, the target had
acknowledged all forwarded records below it."""

HEADER_USER_IDS: Final = "_RF_BRIDGE_IDS"
"""Header beside :data:`HEADER_HOP`: :data:`USER_IDS_IGNORED` = the message's own ID is ignored; absent = it is checked."""

USER_IDS_IGNORED: Final = b"ignore"

HEADER_BRIDGE_APP: Final = "_RF_BRIDGE_APP"
"""Header of a record that a bridge quarantined: ID of its app. Bridges of several sources may share a name and a quarantine topic."""

HEADER_HOPS: Final = "_RF_HOPS"
"""Path of a message, in order, separated by commas (:mod:`ringfence_kafka.protocol.hop_trace`); accepted messages keep it."""

DEAD_LETTER_TOPIC: Final = "__dlq.errors.topic"
"""Header of a dead letter, named by KIP-1191: accepted topic of its message."""
DEAD_LETTER_PARTITION: Final = "__dlq.errors.partition"
"""Partition of the message, as decimal digits."""
DEAD_LETTER_OFFSET: Final = "__dlq.errors.offset"
"""Offset of the message, as decimal digits."""
DEAD_LETTER_GROUP: Final = "__dlq.errors.group"
"""Consumer group, as in :data:`HEADER_CONSUMER_GROUP`."""
DEAD_LETTER_DELIVERIES: Final = "__dlq.errors.delivery.count"
"""Number of attempts, as in :data:`HEADER_ATTEMPTS`."""
DEAD_LETTER_MESSAGE: Final = "__dlq.errors.message"
"""Cause, as in :data:`HEADER_REASON`."""

NO_TIMESTAMP: Final = -1
"""Kafka's value for a record without a timestamp."""

TIMESTAMP_AFTER: Final = "message.timestamp.after.max.ms"
TIMESTAMP_BEFORE: Final = "message.timestamp.before.max.ms"
"""Topic settings for the allowed difference between a record's timestamp and the broker's clock."""

RESERVED_PREFIX: Final = "_RF_"
"""Prefix of Ringfence's own headers; producers must not set them."""


def accepted_topic(address: str) -> str:
    """Return the topic of accepted messages, keyed by group."""
    return f"{address}.accepted"


def duplicates_topic(address: str) -> str:
    """Return the topic of diverted duplicates, if the configuration enables it."""
    return f"{address}.duplicates"


def quarantine_topic(address: str) -> str:
    """Return the topic of messages that were refused permanently."""
    return f"{address}.quarantine"


def dead_letter_topic(address: str) -> str:
    """Return the topic of messages that a handler rejected, or that failed in every attempt."""
    return f"{address}.dlq"


def progress_topic(app_id: str) -> str:
    """Return the compacted topic with the progress of each consumer group in the accepted topics."""
    return f"{app_id}-progress"


def state_topic(app_id: str, group: str, topic: str) -> str:
    """Return the compacted topic with the states of a consumer group's handlers, by group of messages.

    A digest is part of the name if two consumer groups could otherwise get the same one. This is the case if the group or the topic has a
    hyphen or an illegal character, or if the name is cut.
    """
    name = f"{app_id}-{group}-{topic}-state"
    legal = re.sub(r"[^a-zA-Z0-9._-]", "_", name)
    if legal == name and len(name) <= TOPIC_CHARACTERS_MAX and "-" not in group and "-" not in topic:
        return name
    digest = blake2b(f"{app_id}\0{group}\0{topic}".encode(), digest_size=8).hexdigest()
    whole = legal.removesuffix("-state")
    return f"{whole[: TOPIC_CHARACTERS_MAX - len(digest) - len('--state')]}-{digest}-state"


def is_state_topic(name: str, app_id: str, accepted_topics: Iterable[str]) -> bool:
    """Return whether a topic has the name of a state topic of these accepted topics."""
    if not (name.startswith(f"{app_id}-") and name.endswith("-state")):
        return False
    whole = re.sub(r"(-[0-9a-f]{16})?-state$", "", name)
    return any(whole.endswith(f"-{topic}") for topic in accepted_topics)


def consumer_transactional_id(app_id: str, group: str, topic: str, partition: int) -> str:
    """Return the transactional ID of a partition's holder in a consumer group."""
    return f"{app_id}-consumer/{group}/{topic}/{partition}"


def repair_group(app_id: str) -> str:
    """Return the name under which the progress topic records settled messages of quarantine and dead-letter topics."""
    return f"{app_id}-repair"


def journal_topic(app_id: str) -> str:
    """Return the topic of events after which an ID may be accepted twice: a ring was cleared, resized, or forgotten at an opening."""
    return f"{app_id}-journal"


def forward_topic(app_id: str, address: str) -> str:
    """Return the topic that carries records to their home lane; partition = home lane."""
    return f"{app_id}-{address}-forward"


def changelog_topic(app_id: str, address: str) -> str:
    """Return the compacted topic with the rings of an address; partition p is for lane p."""
    return f"{app_id}-{address}-changelog"


def transactional_id(app_id: str, address: str, lane: int) -> str:
    """Return the transactional ID of a lane. It is the lane's fence: the process that initialises it last owns the lane."""
    return f"{app_id}-{address}-{lane}"


def lane_name(address: str, lane: int) -> str:
    """Return the name of a lane in logs, health and folders."""
    return f"{address}-{lane}"


HOP_MEMORY: Final = "BRIDGE."
"""Prefix of an address's hop memory, before the address, as HornetQ 37.3 names this cache."""


def bridge_group(app_id: str, bridge: str) -> str:
    """Return the consumer group of a bridge at its source."""
    return f"{app_id}-bridge-{bridge}"


def run_group(app_id: str) -> str:
    """Return the memberless consumer group under which a reconciliation run commits its result."""
    return f"{app_id}-reconcile"


def group_owner(app_id: str, group: str) -> str:
    """Return the part of an application that commits offsets or records progress in a group; empty = the group is free for consumers."""
    owners = {
        app_id: "the workers (app.id)",
        repair_group(app_id): "the redrive commands",
        run_group(app_id): "the reconciliation run",
    }
    return "a bridge" if group.startswith(bridge_group(app_id, "")) else owners.get(group, "")


def bridge_quarantine_topic(bridge: str) -> str:
    """Return the topic at a bridge's target for records that the target refuses."""
    return f"{bridge}.quarantine"


def source(topic: str, partition: int) -> bytes:
    """Return the start of :data:`HEADER_SOURCE`; the offset follows as decimal digits."""
    return b"%b/%d/" % (topic.encode(), partition)
