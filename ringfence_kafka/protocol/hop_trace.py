"""Path of a message in its :data:`ringfence_kafka.protocol.wire_names.HEADER_HOPS`. Pure.

It has the names of members of a cluster connection. For a bridge outside a cluster connection it has Kafka's ID of the source topic behind
a ``*``, which no member's name contains. A topic that was deleted and created again is therefore another one. Messages may go further than
one step: a member that gets the message from one on its path then stands there behind a ``+``. No other member needs to bring it there.
"""

from collections.abc import Sequence
from typing import Final

TOPIC_MARK: Final = b"*"
REACHED_MARK: Final = b"+"
TOPICS_MAX: Final = 16
"""The last ones stay: a circle over so many topics is seen."""


def topic(topic_id: str) -> bytes:
    """Return the entry of a topic."""
    return TOPIC_MARK + topic_id.encode()


def reached(member: bytes) -> bytes:
    """Return the entry of a member that gets it from one that it has passed."""
    return REACHED_MARK + member


def entries(value: bytes | None) -> list[bytes]:
    """Return the entries of a header, in order."""
    return [part for part in (value or b"").split(b",") if part]


def members(found: Sequence[bytes]) -> list[bytes]:
    """Those that it has passed, of a connection, among the entries."""
    return [data for data in found if data[:1] not in {TOPIC_MARK, REACHED_MARK}]


def with_topic(found: Sequence[bytes], own: bytes) -> bytes:
    """Return the header once it has passed this topic, too."""
    kept = [*found, own]
    while sum(data[:1] == TOPIC_MARK for data in kept) > TOPICS_MAX:
        kept.remove(next(data for data in kept if data[:1] == TOPIC_MARK))
    return b",".join(kept)
