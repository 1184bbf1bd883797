"""The claim to a partition: who has it for which consumer group, and under which token."""

from dataclasses import dataclass

from ringfence_client import record


class LostError(Exception):
    """Somebody else holds the partition now."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose progress it is."""

    group: str
    topic: str
    partition: int
    holder: str
    """Made anew at each opening."""
    web: str = ""
    token: int = 0
    """The fencing token."""
    topic_id: str = ""
    """Kafka's own, of the topic that is read: its offsets mean nothing in another one of that name."""

    @property
    def key(self) -> bytes:
        """Of the progress record."""
        return record.encode_key(self.group, self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"
