"""When a newcomer may take a partition from whoever holds it. Pure.

DeFiBus lets a new consumer pull a queue when all that was delivered to the old one is acknowledged and nothing more is
delivered, or its lock has timed out. Its broker counts how often it saw the same offsets; here the newcomer looks at the
holder's record. What a holder writes is a sign of life; no clock but the newcomer's own is looked at.
"""

from ringfence_client.record import Progress


class LeaseWatch:
    """One newcomer's view of one lease, however often it begins to wait: no two records are the same."""

    def __init__(self, timeout: float, idle: float) -> None:
        """Seconds without a change after which a lease is free: in general, and where nothing is unacknowledged."""
        self._timeout = timeout
        self._idle = idle
        self._seen: Progress | None = None
        self.since = 0.0
        """When the present record was there at the latest."""

    def look(self, lease: Progress | None, begun: float, asked: float) -> float:
        """Take note of what was read.

        Args:
            lease: The last record; None = there is none.
            begun: When the reading began, by :func:`ringfence_kafka.clock.now`.
            asked: When it was known up to where to read, by the same clock: what was written after that is not in it. It may
                have taken much longer: a holder that died within a transaction holds up the reading until that is aborted.

        Returns:
            How long it must stay as it is until it may be taken, in seconds; 0 = it may be taken now.
        """
        if lease is None or lease.released:
            return 0.0
        if lease != self._seen:
            # It may have been written at any time until then.
            self._seen, self.since = lease, asked
        limit = self._timeout if lease.running else self._idle
        return max(0.0, self.since + limit - begun)
