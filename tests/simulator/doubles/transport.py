"""Double of Faust and aiokafka's consumer: batches in buffers for lanes, cancelled at a rebalance; fetched ones pass even after a rewind."""

import asyncio
from collections import Counter, deque
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final

from aiokafka.errors import IllegalStateError, KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError

from agents.batch.batch import FetchedBatch
from agents.lane.lane import Lane
from agents.worker.lanes import Lanes
from tests.simulator.kafka.cluster import SimulatedCluster
from tests.simulator.kafka.groups import Joined, Place
from tests.simulator.kafka.logs import Fetched
from tests.simulator.lanes.membership import Rights

HEARTBEAT_S: Final = 1.0
"""Seconds between heartbeats. The product's are 0.5 s; the session is shorter here as well, by as much."""
AGAIN_S: Final = 0.1
TOLD_S: Final = 0.005
"""Greatest delay in seconds between the fetcher's assignment and the lanes'."""
BUFFER_BATCHES: Final = 2
FETCH_OFFSETS: Final = 4
"""Offsets in one fetch of one partition: few, so that there are many batches."""


class Ownership:
    """Double of :class:`app.worker.membership.group.GroupOwnership`, for one assignment."""

    def __init__(self, consumer: "SimulatedConsumer", generation: int) -> None:
        self._consumer = consumer
        self._generation = generation
        self.confirmed = False

    async def confirm(self) -> bool:
        consumer, generation = self._consumer, self._generation
        if consumer.generation != generation:
            return False
        answer = await consumer.heartbeat(generation)
        well = answer == "ok" and consumer.generation == generation
        if well:
            consumer.rights.confirm()
            self.confirmed = True
        return well

    async def rewind(self, topic: str, partition: int, offset: int) -> int:
        await asyncio.sleep(0)  # to the consumer's thread
        found = self._consumer.rewind(Place(topic, partition), offset)
        await asyncio.sleep(0)
        return found


class SimulatedConsumer:
    """Consumer in one life of a process."""

    def __init__(self, process: Any, lanes: Lanes) -> None:
        self._network = process.network
        self._cluster: SimulatedCluster = process.cluster
        self._dice = process.dice
        self.rights: Rights = process.rights
        self._lanes = lanes
        self.generation = -1
        self.member: str | None = None
        self._assigned = False
        self._seeks: Counter[Place] = Counter()
        self.rewound_by: dict[Place, Any] = {}
        self._rewound: dict[Place, int] = {}
        self._positions: dict[Place, int] = {}
        self._buffers: dict[Place, deque[FetchedBatch]] = {}
        self._actors: dict[Place, asyncio.Task[None]] = {}
        self._filled: dict[Place, asyncio.Event] = {}
        self._empty: dict[Place, tuple[int, int]] = {}
        self._wake = asyncio.Event()
        self._rejoin = asyncio.Event()
        self._leaving = False

    async def run(self) -> None:
        loop: Any = asyncio.get_running_loop()
        self._beat(loop)
        fetching = asyncio.create_task(self._fetch())
        lost = False
        while not self._leaving:
            await self._revoke(lost=lost)
            joined = await self._join()
            self._rejoin.clear()
            self._take_over(joined)
            await asyncio.sleep(TOLD_S * self._dice.random())
            await self._lanes.assigned(set(joined.assigned), Ownership(self, joined.generation))
            self._assigned = True
            self._wake.set()
            await self._rejoin.wait()
            lost = self.generation < 0
        fetching.cancel()

    async def leave(self) -> None:
        self._leaving = True
        await self._lanes.stop()
        if self.member is not None:
            await self._network.call(self._cluster.group.leave, self.member)
        self._rejoin.set()

    def notice(self, topics: Collection[str]) -> None:
        if any(place.topic in topics for place in self._positions):
            self._wake.set()

    # -- membership --------------------------------------------------------------------------------------------

    async def heartbeat(self, generation: int) -> str:
        return str(await self._network.call(self._cluster.group.heartbeat, self.member, generation))

    def _beat(self, loop: Any) -> None:
        """Send heartbeats from a timer, not a task: a world at rest does little else."""
        if self._leaving:
            return
        loop.call_later(HEARTBEAT_S, self._beat, loop)
        if self.member is not None and self.generation >= 0 and not self._rejoin.is_set():
            asked = self.generation
            told = partial(self._beaten, asked)
            self._network.ask(loop, told, self._cluster.group.heartbeat, (self.member, asked))

    def _beaten(self, asked: int, answer: str, error: Exception | None) -> None:
        if error is not None or answer == "ok" or asked != self.generation or self._rejoin.is_set():
            return
        if answer == "unknown":
            self.member = None
        if answer != "rebalancing":
            self.generation = -1
        self._rejoin.set()

    async def _revoke(self, *, lost: bool) -> None:
        unsaid = lost and self._dice.random() < 0.3
        if unsaid or not self._assigned:
            return
        self._drop()
        await self._lanes.revoked()

    async def _join(self) -> Joined:
        while True:
            try:
                joined: Joined = await self._network.join(
                    self._cluster.group.join, self.member, self._network.name, None
                )
            except KafkaError:
                await asyncio.sleep(AGAIN_S)
            else:
                return joined

    def _take_over(self, joined: Joined) -> None:
        self.member, self.generation = joined.member, joined.generation
        self._rewound.clear()
        self._positions = {place: joined.committed.get(place, 0) for place in sorted(joined.assigned)}
        self._empty.clear()
        for place in list(self._actors):
            if place not in joined.assigned:
                self._drop_one(place)
        for place in self._positions:
            if place not in self._actors:
                self._buffers[place], self._filled[place] = deque(), asyncio.Event()
                self._actors[place] = asyncio.create_task(self._act(place))

    def _drop(self) -> None:
        self._positions.clear()
        for place in list(self._actors):
            self._drop_one(place)

    def _drop_one(self, place: Place) -> None:
        self._actors.pop(place).cancel()
        del self._buffers[place], self._filled[place]

    # -- fetching ----------------------------------------------------------------------------------------------

    def rewind(self, place: Place, offset: int) -> int:
        if place not in self._positions:
            raise IllegalStateError(f"{place} is not assigned")
        self._seeks[place] += 1
        lane = self._lane_of(place)
        self.rewound_by[place] = None if lane is None else lane._doing
        self._empty.pop(place, None)
        if self._rewound.get(place) == offset and self._at_work(place):
            self.rights.violations.append(f"REWOUND {place} to {offset}, from where nothing was fetched yet")
        self._positions[place] = self._rewound[place] = offset
        self._wake.set()
        return self._seeks[place]

    def _at_work(self, place: Place) -> bool:
        lane = self._lane_of(place)
        return lane is not None and lane._busy

    def _lane_of(self, place: Place) -> Lane | None:
        return self._lanes._lanes.get(self._lanes._map.find(*place))

    async def _act(self, place: Place) -> None:
        buffer, filled = self._buffers[place], self._filled[place]
        while True:
            if not buffer:
                filled.clear()
                await filled.wait()
            batch = buffer.popleft()
            self._wake.set()
            await self._lanes.offer(batch)

    async def _fetch(self) -> None:
        while True:
            self._wake.clear()
            wanted = {
                place: position
                for place, position in self._positions.items()
                if len(self._buffers[place]) < BUFFER_BATCHES and self._cluster.brings(*place, position)
            }
            if not wanted:
                await self._wake.wait()
                continue
            asked = {place: (self.generation, self._seeks[place]) for place in wanted}
            try:
                fetched = await self._network.call(self._read, wanted)
            except KafkaError:
                await asyncio.sleep(AGAIN_S)
                continue
            got = False
            for place, found in fetched.items():
                # aiokafka's fetcher drops records that a seek or a rebalance overtakes.
                if asked[place] == (self.generation, self._seeks[place]) and place in self._positions:
                    got = self._take(place, found) or got
            if not got:
                await self._wake.wait()

    def _read(self, wanted: Mapping[Place, int]) -> dict[Place, Fetched | int]:
        """Read in the cluster. A number is the log's start: the position was outside the log, and auto.offset.reset is earliest."""
        fetched: dict[Place, Fetched | int] = {}
        for place, position in wanted.items():
            try:
                fetched[place] = self._cluster.fetch(*place, position, position + FETCH_OFFSETS)
            except OffsetOutOfRangeError:
                fetched[place] = self._cluster.log(*place).start
            except UnknownTopicOrPartitionError:
                continue
        return fetched

    def _take(self, place: Place, fetched: Fetched | int) -> bool:
        begin = self._positions[place]
        self._rewound.pop(place, None)
        if isinstance(fetched, int):
            self._positions[place] = fetched
            self._empty.pop(place, None)
            return True
        if fetched.end == begin:
            return False
        self._positions[place] = fetched.end
        earlier = self._empty.pop(place, None)
        if earlier is not None and earlier[1] == begin:
            begin = earlier[0]
        if not fetched.records:
            self._empty[place] = (begin, fetched.end)
            return True
        if (dropping := self._cluster.dropping.get(place)) is not None and dropping():
            del self._cluster.dropping[place]
            return True
        self._buffers[place].append(
            FetchedBatch(
                place.topic, place.partition, begin, fetched.end, fetched.records, self._seeks[place]
            )
        )
        self._filled[place].set()
        return True
