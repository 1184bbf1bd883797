"""Restores lanes of other workers before the group assigns them to this worker."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from agents.lane.assignment import LaneKey, Partition
from agents.worker.lane_factory import LaneFactory
from agents.worker.lane_map import listed

log: Final = logging.getLogger("ringfence.worker")

SLOWLY_S: Final = 60.0
"""Time of restoring at half speed before a worker joins, in seconds; that is half of its time before it joins."""


class WarmUp:
    """Restorer of lanes. It never fails: a lane that cannot be restored now is restored when it opens."""

    def __init__(self, factory: LaneFactory) -> None:
        self._factory = factory

    async def restore(self, partitions: Iterable[Partition]) -> None:
        """Restore lanes, slowly at first: the restore is not urgent, and the owners may need the same cores."""
        lanes = self._factory.lanes
        mine = lanes.lanes_of(partitions)
        if mine:
            log.info(
                "restoring %d lanes ahead of their assignment: %s", len(mine), listed(map(lanes.name, mine))
            )
        self._factory.slices.rest(SLOWLY_S)
        try:
            await asyncio.gather(*map(self._restore_lane, mine))
        finally:
            self._factory.slices.rest(0)

    async def _restore_lane(self, key: LaneKey) -> None:
        opening = self._factory.opening(key)
        try:
            await opening.warm_up()
        except BaseException as error:
            opening.table.close()  # the opening continues from the part that is written
            if not isinstance(error, Exception):
                raise
            # The opening meets the same problem and reports it.
            log.info("lane %s cannot be restored ahead of its assignment: %r", opening.name, error)
        else:
            self._factory.tables.keep(key, opening.table)
