"""A process with its machine's disk, network and clock; a worker has the product's own lanes in each of its lives."""

import asyncio
import random
from collections.abc import Collection
from typing import Any, Final

from agents.worker.lanes import Lanes
from ringfence_kafka.config.settings import Settings
from tests.simulator.doubles.admin import SimulatedQuestions
from tests.simulator.doubles.store import Disk
from tests.simulator.doubles.transport import SimulatedConsumer
from tests.simulator.gap_log import Gap
from tests.simulator.kafka.cluster import SimulatedCluster
from tests.simulator.kafka.network import Network
from tests.simulator.lanes.membership import Rights
from tests.simulator.loop import Loops, ProcessLoop

BOOT_S: Final = 1_000.0
"""CLOCK_MONOTONIC when the world begins: no machine's ever shows 0."""
EPOCH_S: Final = 1_800_000_000.0
WATCH_S: Final = 5.0
"""Seconds between two looks at the cluster, as in app/worker/run.py."""


class Process:
    """A process of any program, over all its lives."""

    def __init__(
        self, name: str, settings: Settings, cluster: SimulatedCluster, loops: Loops, dice: random.Random
    ) -> None:
        self.name = name
        self.settings = settings
        self.cluster = cluster
        self.dice = dice
        self.disk = Disk()
        self.network = Network(loops, dice, name, cluster)
        self.skew = 0.0
        self.loop: ProcessLoop | None = None
        self.rights = Rights()
        self.gaps: list[Gap] = []
        self.woke_at = 0.0
        self.producers: dict[object, None] = {}
        self.killed_at: list[float] = []
        self.lanes: Lanes | None = None
        self.loops = loops

    def monotonic(self) -> float:
        return self.loops.now + BOOT_S

    def wall(self) -> float:
        return EPOCH_S + self.loops.now + self.skew

    def start(self) -> None:
        if self.loop is not None:
            return
        loop = self.loop = self.loops.new(self)
        self.rights.begin()
        self.producers.clear()
        # Made on the loop, as locks and events are bound to it when they are first used.
        loop.call_soon(self._begin)

    def crash(self) -> None:
        if self.loop is not None:
            loop, self.loop = self.loop, None
            loop.crash()
            self._gone(loop)

    def kill(self) -> None:
        self.killed_at.append(self.loops.now)
        self.crash()

    def stop(self, away_s: float) -> None:
        """Stop in order, as after SIGTERM; the process comes back ``away_s`` seconds after its end."""
        raise NotImplementedError

    def notice(self, topics: Collection[str]) -> None:
        raise NotImplementedError

    @property
    def generation(self) -> int:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def _gone(self, _loop: ProcessLoop) -> None:
        """Forget a life that has ended."""

    def _ended(self, loop: ProcessLoop, away_s: float) -> None:
        if self.loop is loop:
            self.crash()
            self.loops.after(away_s, self.start)


class Worker(Process):
    """A process that has lanes."""

    def __init__(
        self, name: str, settings: Settings, cluster: SimulatedCluster, loops: Loops, dice: random.Random
    ) -> None:
        super().__init__(name, settings, cluster, loops, dice)
        self.consumer: SimulatedConsumer | None = None
        self.watches = True

    @property
    def generation(self) -> int:
        return -1 if self.consumer is None else self.consumer.generation

    def stop(self, away_s: float) -> None:
        loop, consumer = self.loop, self.consumer
        if loop is not None and consumer is not None:
            loop.call_soon(self._leave, consumer, loop, away_s)

    def notice(self, topics: Collection[str]) -> None:
        if self.consumer is not None:
            self.consumer.notice(topics)

    def _begin(self) -> None:
        questions: Any = SimulatedQuestions(
            self.settings.kafka, self.settings.app.id, self.cluster, self.network
        )
        self.lanes = Lanes(self.settings, questions)
        self.consumer = SimulatedConsumer(self, self.lanes)
        asyncio.create_task(self.consumer.run())  # noqa: RUF006 - the loop keeps it
        if self.watches:
            asyncio.create_task(self._watch(self.lanes))  # noqa: RUF006

    def _gone(self, _loop: ProcessLoop) -> None:
        self.lanes = self.consumer = None

    def _leave(self, consumer: SimulatedConsumer, loop: ProcessLoop, away_s: float) -> None:
        asyncio.create_task(self._end(consumer, loop, away_s))  # noqa: RUF006

    async def _end(self, consumer: SimulatedConsumer, loop: ProcessLoop, away_s: float) -> None:
        try:
            async with asyncio.timeout(20):
                await consumer.leave()
        finally:
            if self.loop is loop:
                self.loops.after(0, self._ended, loop, away_s)

    @staticmethod
    async def _watch(lanes: Lanes) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            await lanes.measure_lag()
            await lanes.check_topics()
