"""The wire vocabulary: header names, topic names, transactional IDs.

Other programs and the nightly reconciliation rely on these names; changing one is a change of the interface.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

TOPIC_CHARACTERS_MAX: Final = 249
"""Kafka's own bound of a topic's name."""

HEADER_SOURCE: Final = "_RF_SOURCE"
"""On every accepted record: ``<topic>/<partition>/<offset>`` of the input record it was made from."""

HEADER_KEY: Final = "_RF_KEY"
"""On an accepted record: the input record's key, where it differs from the group."""

HEADER_SEQUENCE: Final = "_RF_SEQ"
"""On an accepted record of an address that sets ``lanes``: the sequence number that its ID got in the lane's ring, as decimal digits. A part
of a transaction has that of its own ID, or else of the envelope's. Missing = it has no ID, or detection is off."""

HEADER_VERDICT: Final = "_RF_VERDICT"
"""On an accepted record of an address that observes: ``ACCEPTED``, ``UNCHECKED``, or ``DUPLICATE`` and, behind a space,
``<topic>/<partition>/<offset>`` of the original's input record. The place is missing if the lane no longer knows it.
On a diverted duplicate with another value than its original's: :data:`VERDICT_CONFLICT`."""

VERDICT_CONFLICT: Final = b"CONFLICT"

HEADER_ORIGINAL: Final = "_RF_ORIGINAL"
"""On a diverted duplicate: ``<topic>/<partition>/<offset>`` of the original's input record."""

HEADER_SENDER: Final = "_RF_SENDER"
"""On an input record that a named outbox sent, and on what is accepted of it: the outbox's name."""

HEADER_REASON: Final = "_RF_REASON"
"""On a quarantined record: why it was refused for good."""

HEADER_TIMESTAMP: Final = "_RF_TIMESTAMP"
"""On a forwarded record: the input record's timestamp, in ms, eight bytes. Nowhere else."""

HEADER_CONSUMER_GROUP: Final = "_RF_CONSUMER_GROUP"
"""On a dead letter: the consumer group whose handler could not do it. :data:`HEADER_REASON` says why."""

HEADER_ATTEMPTS: Final = "_RF_ATTEMPTS"
"""On a dead letter: how often it was tried, as decimal digits."""

HEADER_REDRIVEN: Final = "_RF_REDRIVEN"
"""How often it was redriven, as decimal digits. It is on records that a redrive from quarantine publishes, and on dead letters of redriven
messages. Missing = never."""

HEADER_TRANSACTION: Final = "_RF_TX"
"""On an input record: it is an envelope, a transaction whose parts its value lists; the form of that."""

TRANSACTION_FORM: Final = b"json/1"
"""The form of envelopes that this version reads."""

TRANSACTION_PARTS_MAX: Final = 10_000
"""Of one envelope."""

HEADER_PART: Final = "_RF_TX_PART"
"""On an accepted record: it is a part of a transaction, ``i/N``: part i of N, counted from 1."""

HEADER_HOP: Final = "_RF_BRIDGE_DUPL_ID"
"""On a record that a bridge forwarded: which step this is, as :mod:`ringfence_kafka.protocol.hop` writes it."""

HEADER_CONFIRMED: Final = "_RF_BRIDGE_CONFIRMED"
"""Beside :data:`HEADER_HOP`: an offset of its source partition, as decimal digits. When this was sent, the target had acknowledged
everything below it that was to be forwarded."""

HEADER_USER_IDS: Final = "_RF_BRIDGE_IDS"
"""Beside :data:`HEADER_HOP`: :data:`USER_IDS_IGNORED` = the message's own ID is not looked at; missing = it is checked."""

USER_IDS_IGNORED: Final = b"ignore"

HEADER_BRIDGE_APP: Final = "_RF_BRIDGE_APP"
"""On what a bridge has quarantined: the ID of its application. Bridges of several sources may have one name, and then one quarantine topic."""

HEADER_HOPS: Final = "_RF_HOPS"
"""Path of a message, in order, with commas between (:mod:`ringfence_kafka.protocol.hop_trace`); stays on accepted messages."""

DEAD_LETTER_TOPIC: Final = "__dlq.errors.topic"
"""On a dead letter, as KIP-1191 names them: the accepted topic that its message stands in …"""
DEAD_LETTER_PARTITION: Final = "__dlq.errors.partition"
"""… the partition, as decimal digits …"""
DEAD_LETTER_OFFSET: Final = "__dlq.errors.offset"
"""… and the offset."""
DEAD_LETTER_GROUP: Final = "__dlq.errors.group"
"""The consumer group, as :data:`HEADER_CONSUMER_GROUP`."""
DEAD_LETTER_DELIVERIES: Final = "__dlq.errors.delivery.count"
"""How often it was tried, as :data:`HEADER_ATTEMPTS`."""
DEAD_LETTER_MESSAGE: Final = "__dlq.errors.message"
"""Why, as :data:`HEADER_REASON`."""

NO_TIMESTAMP: Final = -1
"""Kafka's value for a record without a timestamp."""

TIMESTAMP_AFTER: Final = "message.timestamp.after.max.ms"
TIMESTAMP_BEFORE: Final = "message.timestamp.before.max.ms"
"""Settings of a topic: how far a record's timestamp may be from the broker's clock."""

RESERVED_PREFIX: Final = "_RF_"
"""Headers that begin so belong to Ringfence; producers must not set them."""


def input_topic(address: str) -> str:
    """Topic that producers publish to."""
    return address


def accepted_topic(address: str) -> str:
    """Topic that carries what was accepted, keyed by group."""
    return f"{address}.accepted"


def duplicates_topic(address: str) -> str:
    """Return the topic that duplicates are diverted to, if the configuration says so."""
    return f"{address}.duplicates"


def quarantine_topic(address: str) -> str:
    """Topic for what was refused for good."""
    return f"{address}.quarantine"


def dead_letter_topic(address: str) -> str:
    """Topic for messages that a consumer group's handler rejected, or that failed in every attempt."""
    return f"{address}.dlq"


def progress_topic(app_id: str) -> str:
    """Compacted topic with how far each consumer group is in each partition of the accepted topics."""
    return f"{app_id}-progress"


def state_topic(app_id: str, group: str, topic: str) -> str:
    """Compacted topic with the states of a consumer group's handlers for each group of messages.

    If two consumer groups could get the same topic name, a digest is part of it. That is the case if the group or the topic has a hyphen or
    a character that topics may not have, or if the name is cut.
    """
    name = f"{app_id}-{group}-{topic}-state"
    legal = re.sub(r"[^a-zA-Z0-9._-]", "_", name)
    if legal == name and len(name) <= TOPIC_CHARACTERS_MAX and "-" not in group and "-" not in topic:
        return name
    digest = blake2b(f"{app_id}\0{group}\0{topic}".encode(), digest_size=8).hexdigest()
    whole = legal.removesuffix("-state")
    return f"{whole[: TOPIC_CHARACTERS_MAX - len(digest) - len('--state')]}-{digest}-state"


def is_state_topic(name: str, app_id: str, accepted_topics: Iterable[str]) -> bool:
    """Return whether a topic is named as a state topic of these accepted topics."""
    if not (name.startswith(f"{app_id}-") and name.endswith("-state")):
        return False
    whole = re.sub(r"(-[0-9a-f]{16})?-state$", "", name)
    return any(whole.endswith(f"-{topic}") for topic in accepted_topics)


def consumer_transactional_id(app_id: str, group: str, topic: str, partition: int) -> str:
    """Transactional ID of who holds a partition for a consumer group."""
    return f"{app_id}-consumer/{group}/{topic}/{partition}"


def repair_group(app_id: str) -> str:
    """Under this name the progress topic has which records of quarantine and dead-letter topics are settled."""
    return f"{app_id}-repair"


def journal_topic(app_id: str) -> str:
    """Return the topic of events that excuse an ID accepted twice: a ring cleared, resized, or forgotten at an opening."""
    return f"{app_id}-journal"


def forward_topic(app_id: str, address: str) -> str:
    """Topic by which records that reached another lane than their home travel there; partition = home lane."""
    return f"{app_id}-{address}-forward"


def changelog_topic(app_id: str, address: str) -> str:
    """Compacted topic with the rings of an address, partition p for lane p."""
    return f"{app_id}-{address}-changelog"


def transactional_id(app_id: str, address: str, lane: int) -> str:
    """Transactional ID of a lane. It is the lane's fence: the process that initialises it last owns the lane."""
    return f"{app_id}-{address}-{lane}"


def lane_name(address: str, lane: int) -> str:
    """How logs, health and folders name a lane."""
    return f"{address}-{lane}"


HOP_MEMORY: Final = "BRIDGE."
"""Prefix of an address's hop memory, as HornetQ 37.3 names that cache; the address follows."""


def bridge_group(app_id: str, bridge: str) -> str:
    """Consumer group of a bridge, on its source."""
    return f"{app_id}-bridge-{bridge}"


def run_group(app_id: str) -> str:
    """Consumer group without members, under which a reconciliation run commits its result."""
    return f"{app_id}-reconcile"


def bridge_quarantine_topic(bridge: str) -> str:
    """Topic at a bridge's target for what the target does not take."""
    return f"{bridge}.quarantine"


def source(topic: str, partition: int) -> bytes:
    """Return the beginning of :data:`HEADER_SOURCE`; the offset follows as decimal digits."""
    return b"%b/%d/" % (topic.encode(), partition)
