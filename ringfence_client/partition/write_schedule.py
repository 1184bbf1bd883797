"""Times at which a holder writes its lease, and how long a lease covers new messages."""

import asyncio
from collections.abc import Collection
from typing import Final, NamedTuple

from ringfence_client.handlers.options import ConsumerOptions
from ringfence_kafka import clock
from ringfence_kafka.concurrency.timeouts import set_within

REFRESH_S: Final = 1.0
"""A record that says nothing new is written so often while something runs: its holder lives."""
BYTES_PER_S: Final = 500_000
"""Records grow with what is finished out of order; large ones are written less often."""
BUILDING_SHARE: Final = 0.1
"""Share of the time in which this process may build records, because the event loop is blocked meanwhile."""
URGENT_SHARE: Final = 0.25
"""The same where somebody waits for the write."""
BUILDING_FREE_S: Final = 0.01
"""A record that is built within so long is written at once where somebody waits."""


class Begun(NamedTuple):
    """A write that has begun."""

    changes: int
    """Changes that it has."""
    covered_until: float
    """End of the time that it covers, if it is committed; by :func:`ringfence_kafka.clock.now`."""


class WriteSchedule:
    """Schedule of one partition."""

    def __init__(self, options: ConsumerOptions, closing: asyncio.Event) -> None:
        """Prepare a schedule. ``closing``: set before the last write, which waits for nothing."""
        self._ack_interval = options.ack_interval
        self._ack_count = options.ack_count
        self._timeout = options.lease_timeout
        self._idle = options.lease_idle
        self._closing = closing
        self._covered_until = 0.0
        self._ran = False
        """Whether something ran by the last record."""
        self._changes = 0
        self._urgent = False
        self._wake = asyncio.Event()
        self._written_at = 0.0
        self._pause = 0.0
        self._urgent_pause = 0.0

    def note(self, count: int = 1) -> None:
        """Note that something was begun, or so many messages were finished."""
        before, self._changes = self._changes, self._changes + count
        if not before or before < self._ack_count <= self._changes:
            self._wake.set()

    def hurry(self) -> None:
        """Write at once."""
        self._urgent = True
        self._wake.set()

    def covers(self) -> bool:
        """Return whether a message may begin without a new record, as nobody may take the lease yet.

        A newcomer takes a lease that has not changed for the time-out. It measures by its own clock, and begins after the holder did. Both clocks
        go on while their machines sleep.
        """
        return clock.now() < self._covered_until

    async def due(self, running: Collection[int]) -> None:
        """Wait until there is something to write and it is time for it: at once after a rest, else at the interval.

        While something runs, a record is also due to say that this holder lives. ``running`` has the messages that run, and changes meanwhile.
        """
        rest = self._written_at + self._urgent_pause - clock.now()
        if rest > 0:
            await set_within(self._closing, rest)
        while not self._closing.is_set() and not self._urgent:
            if not self._changes:
                self._wake.clear()
                left = self._written_at + REFRESH_S - clock.now() if running else None
                if not await set_within(self._wake, left):
                    return
                continue
            pause = self._pause if self._changes >= self._ack_count else max(self._ack_interval, self._pause)
            # A message that began after a record of rest must be known before the lease may be taken as idle.
            pause = min(pause, REFRESH_S if self._ran else min(REFRESH_S, self._idle / 4))
            left = self._written_at + pause - clock.now()
            if left <= 0:
                return
            self._wake.clear()
            await set_within(self._wake, left)

    def begin(self, at: float, *, running: bool) -> Begun:
        """Begin a write with everything that was noted.

        Args:
            at: When its record was begun, by :func:`ringfence_kafka.clock.now`.
            running: Whether something runs by the record.
        """
        begun = Begun(self._changes, at + (self._timeout if running else self._idle) / 2)
        self._changes, self._urgent = 0, False
        # From now on it may be the last word, whether its answer is seen or not.
        self._covered_until = min(self._covered_until, begun.covered_until)
        return begun

    def failed(self, begun: Begun) -> None:
        """Note that a write is not known to be committed."""
        self._changes += begun.changes

    def written(self, begun: Begun, *, running: bool, size: int, built_s: float) -> None:
        """Note that a write is committed.

        Args:
            begun: The write.
            running: Whether something runs by its record.
            size: Bytes of the record.
            built_s: Seconds in which it was built.
        """
        self._ran = running
        self._covered_until = begun.covered_until
        self._written_at, self._pause = clock.now(), max(size / BYTES_PER_S, built_s / BUILDING_SHARE)
        # It may also be this process that stood still, for however long.
        self._urgent_pause = min(REFRESH_S, built_s / URGENT_SHARE) if built_s > BUILDING_FREE_S else 0.0
