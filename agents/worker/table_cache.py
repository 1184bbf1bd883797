"""Tables of lanes that a worker may get soon: lanes that left it, and lanes that were restored ahead of their assignment."""

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from tables.table import LaneTable

KEPT_S: Final = 600.0
"""Time that a table is kept, in seconds: longer than the restart of the worker that has the lane."""

Place = TypeVar("Place")


class TableCache(Generic[Place]):
    """Cached tables of one worker, by lane."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tables: dict[Place, tuple[float, LaneTable]] = {}
        """Expiry time and table."""

    def keep(self, place: Place, table: LaneTable) -> None:
        """Keep a table for :data:`KEPT_S` from now on."""
        self._tables[place] = (self._clock() + KEPT_S, table)

    def take(self, place: Place) -> LaneTable | None:
        """Remove and return a table; None if it is not cached."""
        return self._tables.pop(place, (0.0, None))[1]

    async def forget(self) -> None:
        """Dispose of expired tables without blocking other tasks."""
        now = self._clock()
        for item in [item for item, (until, _) in self._tables.items() if until <= now]:
            # a lane that returns meanwhile has taken its table
            if (table := self.take(item)) is not None:
                await table.dispose()

    def close(self) -> None:
        """Close the RocksDB of all tables."""
        for _, table in self._tables.values():
            table.close()
        self._tables.clear()
