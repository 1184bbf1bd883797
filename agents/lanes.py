"""The lanes of a worker: opened and closed as the consumer group assigns partitions."""

import asyncio
import contextlib
import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from aiokafka.errors import KafkaError

from agents.batch import FetchedBatch
from agents.lane import Lane, LaneState
from agents.opening import QUESTION_LIMIT_S, Opening
from agents.ownership import Ownership
from conf import wire
from conf.settings import Settings
from tables.cluster import Cluster

log: Final = logging.getLogger("ringfence.worker")

UNREADABLE_S: Final = 5.0
"""A partition counts as unreadable for so long after a fetch was refused; the next comes much sooner."""
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
        self._inputs = {
            wire.forward_topic(settings.app.id, address.name): address.input_topic
            for address in settings.addresses
        } | {topic: topic for topic in self._addresses}
        """Input and forward topics → the input topic, by which a lane is found."""
        self._lanes: dict[Partition, Lane] = {}
        """By input topic and partition."""
        self._halves: list[str] = []
        """Lanes of which the group gave us one half only, each with what is missing."""
        self._unreadable: dict[Partition, tuple[float, str]] = {}
        """Partitions whose fetch was refused: when last, by the monotonic clock, and why."""
        self._lock = asyncio.Lock()
        self._assigned = False
        self._was_ready = False
        self._gone: dict[str, Counter[str]] = {}
        """Counts of lanes that are no longer here, by address."""
        self.observe_batch: Callable[[str, float], None] = lambda _address, _seconds: None
        """Told of each batch how many seconds it took."""

    async def assigned(self, partitions: Iterable[Partition], ownership: Ownership) -> None:
        """Open these lanes and no others. Returns at once; opening goes on in the lanes' own tasks."""
        async with self._lock:
            mine = self._whole_lanes(set(partitions))
            await asyncio.gather(*(lane.close() for lane in self._lanes.values()))
            for each in self._lanes.keys() - mine:
                await self._dismiss(each)
            for each in sorted(mine):
                lane = self._lanes.get(each)
                if lane is None:
                    lane = self._lanes[each] = self._new(each)
                lane.start(ownership)
            self._assigned = True
            self._state_changed()
            log.info("assigned %d lanes: %s", len(mine), ", ".join(sorted(self._names())) or "none")

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
        lane = self._lanes.get((self._inputs.get(batch.topic, ""), batch.partition))
        if lane is not None:
            await lane.offer(batch)

    @property
    def ready(self) -> bool:
        """The first assignment is complete and every assigned lane is open."""
        return (
            self._assigned
            and not self._halves
            and not self.unreadable
            and all(lane.state is LaneState.OPEN for lane in self._lanes.values())
        )

    def note_unreadable(self, topic: str, partition: int, reason: str) -> None:
        """The fetch of a partition was refused; it is tried again all the time. Called in any thread."""
        known = self._unreadable.get((topic, partition))
        now = time.monotonic()
        self._unreadable[topic, partition] = (now, reason)
        if known is None or now - known[0] > UNREADABLE_S:
            log.warning("%s/%d may not be read, its lane waits: %s", topic, partition, reason)

    @property
    def unreadable(self) -> list[str]:
        """Partitions of ours that may not be read, each with the reason."""
        since = time.monotonic() - UNREADABLE_S
        return [
            f"{topic}/{partition} may not be read: {reason}"
            for (topic, partition), (when, reason) in list(self._unreadable.items())
            if when > since and (self._inputs.get(topic, ""), partition) in self._lanes
        ]

    @property
    def lanes(self) -> list[Lane]:
        """The lanes of this worker, open or not."""
        return list(self._lanes.values())

    @property
    def halves(self) -> list[str]:
        """Lanes that were not opened because only half of them was assigned, each with what is missing."""
        return self._halves

    def report(self) -> dict[str, Any]:
        """State of each lane, for health."""
        return {
            lane.name: {
                "state": lane.state.value,
                **({"reason": lane.reason} if lane.reason else {}),
                "next": lane.next,
                "ring": {
                    "size": len(lane.opening.table.ring),
                    "capacity": lane.opening.table.ring.capacity,
                    "seconds_covered": lane.seconds_covered(),
                },
                **lane.counts,
            }
            for lane in self._lanes.values()
        }

    async def _dismiss(self, partition: Partition) -> None:
        """A lane that went to another worker; what it counted stays counted."""
        lane = self._lanes.pop(partition)
        await lane.dispose()
        self._gone.setdefault(lane.opening.address.name, Counter()).update(lane.counts)

    def totals(self) -> dict[str, Counter[str]]:
        """Counts by address since the worker started, of lanes that have left included."""
        totals = {
            address.name: Counter(self._gone.get(address.name, {})) for address in self._settings.addresses
        }
        for lane in self._lanes.values():
            totals[lane.opening.address.name].update(lane.counts)
        return totals

    async def measure_lag(self) -> None:
        """Ask for the end of each open lane's input, and whether the cluster still fits the lane."""
        await asyncio.gather(*(self._look_at(each) for each in self.lanes if each.state is LaneState.OPEN))

    async def _look_at(self, lane: Lane) -> None:
        """One lane, which may be the only one whose topic does not answer."""
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(QUESTION_LIMIT_S):
                end = await self._cluster.high_watermark(
                    lane.opening.address.input_topic, lane.opening.partition
                )
                lane.lag = max(0, end - lane.next)
                await lane.compare()

    def _whole_lanes(self, partitions: set[Partition]) -> set[Partition]:
        """The lanes of which the group gave us input and forward partition.

        Workers with different address lists can be given different halves of a lane. It must not be opened: its other
        half may be processed elsewhere.
        """
        whole, self._halves = set(), []
        for forward, topic in self._inputs.items():
            if forward == topic:
                continue
            numbers = {number for name, number in partitions if name in {forward, topic}}
            for number in sorted(numbers):
                missing = {(topic, number), (forward, number)} - partitions
                if not missing:
                    whole.add((topic, number))
                    continue
                name = wire.lane_name(self._addresses[topic].name, number)
                half = "/".join(map(str, missing.pop()))
                self._halves.append(
                    f"{name}: {half} was not given to this worker too: another has it, or it does not exist"
                )
                log.error(
                    "lane %s is not opened: %s was not given to this worker too: create it if it does not exist; else run "
                    "all workers of %s with the same addresses",
                    name, half, self._settings.app.id,
                )  # fmt: skip
        return whole

    def _state_changed(self) -> None:
        """Say it once when the worker becomes ready, and once when it no longer is."""
        if self.ready == self._was_ready:
            return
        self._was_ready = self.ready
        if self.ready:
            log.info("ready: %d lanes open", len(self._lanes))
        else:
            waiting = [
                lane.name for lane in self._lanes.values() if lane.state is not LaneState.OPEN
            ] + self._halves
            log.info("not ready: waiting for %s", ", ".join(waiting) or "an assignment")

    def _names(self) -> list[str]:
        return [lane.name for lane in self._lanes.values()]

    def _new(self, partition: Partition) -> Lane:
        address = self._addresses[partition[0]]
        lane = Lane(Opening(self._settings, address, partition[1], self._cluster), self._state_changed)
        lane.transactions.batch_seconds = functools.partial(self.observe_batch, address.name)
        return lane
