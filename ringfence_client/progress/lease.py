"""Lease of a partition: its holder, its token, and the time at which a newcomer may take it. Pure.

In DeFiBus, a new consumer pulls a queue when the old one has acknowledged all deliveries and receives no more, or its lock has timed out.
There the broker counts looks at unchanged offsets. Here the newcomer watches the holder's record: each write is a sign of life. A newcomer
uses its own clock alone.
"""

from dataclasses import dataclass

from ringfence_client.progress import progress_record
from ringfence_client.progress.progress_record import Progress


class LostError(Exception):
    """Another consumer holds the partition now."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Owner of a partition's progress."""

    group: str
    topic: str
    partition: int
    holder: str
    """Name of the holder. Each opening has a new one."""
    web: str = ""
    token: int = 0
    topic_id: str = ""
    """Kafka's ID of the topic. The offsets mean nothing in another topic of the same name."""

    @property
    def key(self) -> bytes:
        """Key of the progress record."""
        return progress_record.encode_key(self.group, self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class LeaseWatch:
    """A newcomer's view of one lease. It lasts over repeated openings, because no two records are equal."""

    def __init__(self, timeout: float, idle: float) -> None:
        """Set the seconds without a change after which a lease is free; ``idle`` applies if no message is unacknowledged."""
        self._timeout = timeout
        self._idle = idle
        self._seen: Progress | None = None
        self.since = 0.0
        """Latest time at which the present record can have been written."""

    def silence_left(self, recorded: Progress | None, begun: float, asked: float) -> float:
        """Return the seconds for which the lease must stay unchanged before it is free; 0 = it is free now.

        The reading of ``recorded`` began at ``begun``, and its end was known at ``asked``. It may take much longer: an open transaction of a dead
        holder delays it until Kafka aborts that transaction.
        """
        if recorded is None or recorded.released:
            return 0.0
        if recorded != self._seen:
            # The record may have been written at any time up to then.
            self._seen, self.since = recorded, asked
        limit = self._timeout if recorded.running else self._idle
        return max(0.0, self.since + limit - begun)
