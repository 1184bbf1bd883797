"""The lanes of a worker: opened and closed as the consumer group assigns partitions."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

from agents.batch import FetchedBatch
from agents.lane import Lane, LaneState
from agents.opening import Opening, Ownership
from conf.settings import Settings
from tables.cluster import Cluster

log: Final = logging.getLogger("ringfence.worker")

Partition = tuple[str, int]
"""Topic and partition number."""


class Lanes:
    """Every assignment closes all lanes and opens those it names: a lane never outlives its assignment.

    RocksDB of a lane that comes back stays open in between.
    """

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self._settings = settings
        self._cluster = cluster
        self._addresses = {address.input_topic: address for address in settings.addresses}
        self._lanes: dict[Partition, Lane] = {}
        self._lock = asyncio.Lock()
        self._assigned = False
        self._was_ready = False

    async def assigned(self, partitions: Iterable[Partition], ownership: Ownership) -> None:
        """Open these lanes and no others. Returns at once; opening goes on in the lanes' own tasks."""
        async with self._lock:
            mine = {each for each in partitions if each[0] in self._addresses}
            await asyncio.gather(*(lane.close() for lane in self._lanes.values()))
            for each in self._lanes.keys() - mine:
                await self._lanes.pop(each).dispose()
            for each in sorted(mine):
                lane = self._lanes.get(each)
                if lane is None:
                    lane = self._lanes[each] = self._new(each)
                lane.start(ownership)
            self._assigned = True
            self._state_changed()
            log.info("assigned %d lanes: %s", len(mine), ", ".join(sorted(map(str, self._names()))) or "none")

    async def revoked(self) -> None:
        """Close all lanes, their transactions finished; a new assignment follows."""
        async with self._lock:
            if self._lanes:
                log.info("rebalance: closing %d lanes", len(self._lanes))
            await asyncio.gather(*(lane.close() for lane in self._lanes.values()))

    async def stop(self) -> None:
        """Close all lanes for good."""
        async with self._lock:
            self._assigned = self._was_ready = False
            await asyncio.gather(*(lane.dispose() for lane in self._lanes.values()))
            self._lanes.clear()

    async def offer(self, batch: FetchedBatch) -> None:
        """Hand a batch to its lane; without such a lane it is dropped, and its owner will fetch it."""
        lane = self._lanes.get((batch.topic, batch.partition))
        if lane is not None:
            await lane.offer(batch)

    @property
    def ready(self) -> bool:
        """The first assignment is complete and every assigned lane is open."""
        return self._assigned and all(lane.state is LaneState.OPEN for lane in self._lanes.values())

    def report(self) -> dict[str, Any]:
        """State of each lane, for health."""
        return {
            lane.name: {
                "state": lane.state.value,
                **({"reason": lane.reason} if lane.reason else {}),
                "next": lane.next,
                **lane.counts,
            }
            for lane in self._lanes.values()
        }

    def _state_changed(self) -> None:
        """Say it once when the worker becomes ready, and once when it no longer is."""
        if self.ready == self._was_ready:
            return
        self._was_ready = self.ready
        if self.ready:
            log.info("ready: %d lanes open", len(self._lanes))
        else:
            waiting = [lane.name for lane in self._lanes.values() if lane.state is not LaneState.OPEN]
            log.info("not ready: waiting for %s", ", ".join(waiting) or "an assignment")

    def _names(self) -> list[str]:
        return [lane.name for lane in self._lanes.values()]

    def _new(self, partition: Partition) -> Lane:
        settings = self._settings
        return Lane(
            Opening(
                settings.kafka, settings.app.id, self._addresses[partition[0]], partition[1], self._cluster,
                settings.state_dir, settings.app.resident_ids_max,
            ),
            self._state_changed,
        )  # fmt: skip
