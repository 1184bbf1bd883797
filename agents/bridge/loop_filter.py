"""Messages that a bridge would bring back to where they have been. Pure.

Two bridges that lead to and fro, or any circle of them, would carry what has no ID round for ever, and what has one once the ring has turned
over. So each bridge says in :data:`ringfence_kafka.protocol.wire_names.HEADER_HOPS` which topic it has read a message from.
"""

from collections.abc import Collection
from typing import Final

from ringfence_kafka.protocol import hop_trace, wire_names

TURNS_MAX: Final = 3
"""What has been read from a topic so often goes no further, even where returns are forwarded: that is a circle."""


class Passing:
    """What a bridge knows of the messages of one source topic, and what it counts of one load of them."""

    def __init__(self, topic_id: str, target_topics: Collection[bytes], *, forwards: bool) -> None:
        """What it goes by.

        Args:
            topic_id: Of the source.
            target_topics: Those of the target that a message which comes there is in, as :func:`ringfence_kafka.protocol.hop_trace.topic` has them.
            forwards: Messages that come back are forwarded all the same.
        """
        self._own = hop_trace.topic(topic_id)
        self._target_topics = frozenset(target_topics)
        self._forwards = forwards
        self.header = (wire_names.HEADER_HOPS, self._own)
        """Of a message that comes from nowhere else."""
        self.returned: list[int] = []
        """Offsets of messages that came back, or would."""
        self.example = b""
        """Where one of these had been."""

    def beyond(self, value: bytes, offset: int) -> bytes | None:
        """The header of a message that says where it has been, when it goes on; None = it does not."""
        found = hop_trace.entries(value)
        turns = found.count(self._own)
        if turns or not self._target_topics.isdisjoint(found):
            self.returned.append(offset)
            self.example = value
            if not self._forwards or turns >= TURNS_MAX:
                return None
        return hop_trace.with_topic(found, self._own)
