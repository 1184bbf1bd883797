"""Times at which a holder writes its lease, and the time for which a lease covers new messages."""

import asyncio
from collections.abc import Collection
from typing import Final, NamedTuple

from ringfence_client.handlers.options import ConsumerOptions
from ringfence_kafka import clock
from ringfence_kafka.concurrency.timeouts import set_within

REFRESH_S: Final = 1.0
"""Interval of records while messages run, in seconds. They show that the holder is alive."""
BYTES_PER_S: Final = 500_000
"""Rate limit of progress. Records grow with messages that finish out of order, so large ones are written less often."""
BUILDING_SHARE: Final = 0.1
"""Share of time for building records. Building blocks the event loop."""
URGENT_SHARE: Final = 0.25
"""Share of time for building records while a caller waits for the write."""
BUILDING_FREE_S: Final = 0.01
"""A record that takes less time to build, in seconds, is written at once if a caller waits."""


class Begun(NamedTuple):
    """A started write."""

    changes: int
    covered_until: float
    """End of the time that the write covers if it is committed, by :func:`ringfence_kafka.clock.now`."""


class WriteSchedule:
    """Schedule of one partition."""

    def __init__(self, options: ConsumerOptions, closing: asyncio.Event) -> None:
        """Prepare a schedule. ``closing`` is set before the last write, which does not wait."""
        self._options = options
        self._ack_count = options.ack_count
        self._closing = closing
        self._covered_until = 0.0
        self._ran = False
        """Whether messages ran according to the last record."""
        self._changes = 0
        self._urgent = False
        self._wake = asyncio.Event()
        self._written_at = 0.0
        self._pause = 0.0
        self._urgent_pause = 0.0

    def count_changes(self, count: int = 1) -> None:
        """Record that a message started, or that ``count`` messages finished."""
        before, self._changes = self._changes, self._changes + count
        if not before or before < self._ack_count <= self._changes:
            self._wake.set()

    def hurry(self) -> None:
        """Write at once."""
        self._urgent = True
        self._wake.set()

    def covers(self) -> bool:
        """Return whether a message may start without a new record, because no consumer may take the lease yet.

        A newcomer takes a lease that has not changed for the time-out. It measures by its own clock, and starts later than the holder. Both
        clocks continue while their machines sleep.
        """
        return clock.now() < self._covered_until

    async def due(self, running: Collection[int]) -> None:
        """Wait for the next write: without delay after a quiet time, otherwise until the interval is over.

        While messages run, a record is also due as a sign of life. ``running`` contains the running messages, and changes during the wait.
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
            pause = (
                self._pause
                if self._changes >= self._ack_count
                else max(self._options.ack_interval, self._pause)
            )
            # A message that starts after an idle record must be recorded before the lease counts as idle.
            pause = min(pause, REFRESH_S if self._ran else min(REFRESH_S, self._options.lease_idle / 4))
            left = self._written_at + pause - clock.now()
            if left <= 0:
                return
            self._wake.clear()
            await set_within(self._wake, left)

    def start_write(self, at: float, *, running: bool) -> Begun:
        """Start a write with all recorded changes. Its record was begun ``at`` this time; ``running``: messages run according to it."""
        begun = Begun(
            self._changes, at + (self._options.lease_timeout if running else self._options.lease_idle) / 2
        )
        self._changes, self._urgent = 0, False
        # From now on this may be the last record, even if its answer is lost.
        self._covered_until = min(self._covered_until, begun.covered_until)
        return begun

    def failed(self, begun: Begun) -> None:
        """Record that a write failed, or that its outcome is unknown."""
        self._changes += begun.changes

    def written(self, begun: Begun, *, running: bool, size: int, built_s: float) -> None:
        """Record that a write is committed. Its record has ``size`` bytes and took ``built_s`` seconds to build."""
        self._ran = running
        self._covered_until = begun.covered_until
        self._written_at, self._pause = clock.now(), max(size / BYTES_PER_S, built_s / BUILDING_SHARE)
        # A long build time may come from a suspended process, so the pause has a limit.
        self._urgent_pause = min(REFRESH_S, built_s / URGENT_SHARE) if built_s > BUILDING_FREE_S else 0.0
