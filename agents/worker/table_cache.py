"""Tables of lanes that a worker does not have now, and may soon: they left, or were restored before they come."""

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from tables.table import LaneTable

KEPT_S: Final = 600.0
"""How long: so long that a restart of the worker that a lane went to, or came from, is over."""

Place = TypeVar("Place")


class TableCache(Generic[Place]):
    """Tables of one worker, by lane."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tables: dict[Place, tuple[float, LaneTable]] = {}
        """Until when, by the clock, and what."""

    def keep(self, place: Place, table: LaneTable) -> None:
        """Keep a table for :data:`KEPT_S` from now on."""
        self._tables[place] = (self._clock() + KEPT_S, table)

    def take(self, place: Place) -> LaneTable | None:
        """Take the table out, to use it."""
        return self._tables.pop(place, (0.0, None))[1]

    async def forget(self) -> None:
        """Let go of those whose time is over, without holding up others."""
        now = self._clock()
        for item in [item for item, (until, _) in self._tables.items() if until <= now]:
            # One that comes back meanwhile is not there any more.
            if (table := self.take(item)) is not None:
                await table.dispose()

    def close(self) -> None:
        """Close RocksDB of all."""
        for _, table in self._tables.values():
            table.close()
        self._tables.clear()
