"""A process: its machine's disk, its network, its clock; a worker, which in each of its lives has the product's own lanes."""

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
"""What CLOCK_MONOTONIC shows then: no machine's ever shows 0."""
EPOCH_S: Final = 1_800_000_000.0
"""What the wall clock shows when the world begins."""
WATCH_S: Final = 5.0
"""Between two looks at the cluster, as app/worker/run.py has them."""


class Process:
    """Of whatever program, over all its lives."""

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
        """By which the wall clock is wrong."""
        self.loop: ProcessLoop | None = None
        """Of its present life; None = it does not run."""
        self.rights = Rights()
        self.gaps: list[Gap] = []
        """That it has named."""
        self.woke_at = 0.0
        """When it was stopped and went on, last."""
        self.producers: dict[object, None] = {}
        """Of its present life: begun, and not stopped."""
        self.killed_at: list[float] = []
        """When messages have ended it."""
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
        """As SIGKILL does; what was written to disk stays."""
        if self.loop is not None:
            loop, self.loop = self.loop, None
            loop.crash()
            self._gone(loop)

    def kill(self) -> None:
        self.killed_at.append(self.loops.now)
        self.crash()

    def stop(self, away_s: float) -> None:
        """As SIGTERM does: in order. When that is done it is gone, and comes back so many seconds later."""
        raise NotImplementedError

    def notice(self, topics: Collection[str]) -> None:
        """There may be something to be fetched of these."""
        raise NotImplementedError

    @property
    def generation(self) -> int:
        """Of the group, as far as it knows; -1 = none."""
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def _gone(self, _loop: ProcessLoop) -> None:
        """Nothing of a life is left."""

    def _ended(self, loop: ProcessLoop, away_s: float) -> None:
        if self.loop is loop:
            self.crash()
            self.loops.after(away_s, self.start)


class Worker(Process):
    """One that has lanes."""

    def __init__(
        self, name: str, settings: Settings, cluster: SimulatedCluster, loops: Loops, dice: random.Random
    ) -> None:
        super().__init__(name, settings, cluster, loops, dice)
        self.consumer: SimulatedConsumer | None = None
        self.watches = True
        """It looks at the cluster now and then."""

    @property
    def generation(self) -> int:
        return -1 if self.consumer is None else self.consumer.generation

    def stop(self, away_s: float) -> None:
        """As SIGTERM does: in order. When that is done it is gone, and comes back so many seconds later."""
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
            await lanes.look_at_topics()
