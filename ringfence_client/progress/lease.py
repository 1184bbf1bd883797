"""The lease of a partition: who has it, under which token, and when a newcomer may take it. Pure.

DeFiBus lets a new consumer pull a queue when all that was delivered to the old one is acknowledged and nothing more is
delivered, or its lock has timed out. Its broker counts how often it saw the same offsets; here the newcomer looks at the
holder's record. Each write of a holder is a sign of life. A newcomer uses its own clock alone.
"""

from dataclasses import dataclass

from ringfence_client.progress import progress_record
from ringfence_client.progress.progress_record import Progress


class LostError(Exception):
    """Somebody else holds the partition now."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Owner of a partition's progress."""

    group: str
    topic: str
    partition: int
    holder: str
    """Each opening has a new one."""
    web: str = ""
    token: int = 0
    """The fencing token."""
    topic_id: str = ""
    """Kafka's own, of the topic that is read: its offsets mean nothing in another one of that name."""

    @property
    def key(self) -> bytes:
        """Key of the progress record."""
        return progress_record.encode_key(self.group, self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class LeaseWatch:
    """One newcomer's view of one lease, however often it begins to wait: no two records are the same."""

    def __init__(self, timeout: float, idle: float) -> None:
        """Seconds without a change after which a lease is free: in general, and where nothing is unacknowledged."""
        self._timeout = timeout
        self._idle = idle
        self._seen: Progress | None = None
        self.since = 0.0
        """When the present record was there at the latest."""

    def look(self, recorded: Progress | None, begun: float, asked: float) -> float:
        """Return the seconds for which the lease must stay as it is until it may be taken; 0 = now.

        Args:
            recorded: The last record; None = there is none.
            begun: When the reading began, by :func:`ringfence_kafka.clock.now`.
            asked: When it was known up to where to read, by the same clock. The reading may take much longer: a holder that died within a
                transaction holds it up until that is aborted.
        """
        if recorded is None or recorded.released:
            return 0.0
        if recorded != self._seen:
            # It may have been written at any time until then.
            self._seen, self.since = recorded, asked
        limit = self._timeout if recorded.running else self._idle
        return max(0.0, self.since + limit - begun)
