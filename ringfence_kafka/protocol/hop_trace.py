"""Path of a message in its :data:`ringfence_kafka.protocol.wire_names.HEADER_HOPS`. Pure.

It contains names of members of a cluster connection. A bridge outside of a cluster connection adds ``*`` and Kafka's ID of the source
topic; member names contain no ``*``. A topic that was created again therefore has another entry. A member that gets the message from one
on its path is listed with ``+``, so that no other member forwards it there.
"""

from collections.abc import Sequence
from typing import Final

TOPIC_MARK: Final = b"*"
REACHED_MARK: Final = b"+"
TOPICS_MAX: Final = 16
"""Maximum number of topic entries; the latest ones stay. Loops over this number of topics are detected."""


def topic(topic_id: str) -> bytes:
    """Return the entry of a topic."""
    return TOPIC_MARK + topic_id.encode()


def reached(member: bytes) -> bytes:
    """Return the entry of a member that gets the message from a member on its path."""
    return REACHED_MARK + member


def entries(value: bytes | None) -> list[bytes]:
    """Return the entries of a header, in order."""
    return [part for part in (value or b"").split(b",") if part]


def members(found: Sequence[bytes]) -> list[bytes]:
    """Return the members on the path, among the entries."""
    return [data for data in found if data[:1] not in {TOPIC_MARK, REACHED_MARK}]


def with_topic(found: Sequence[bytes], own: bytes) -> bytes:
    """Return the header with the entry of one more topic."""
    kept = [*found, own]
    while sum(data[:1] == TOPIC_MARK for data in kept) > TOPICS_MAX:
        kept.remove(next(data for data in kept if data[:1] == TOPIC_MARK))
    return b",".join(kept)
